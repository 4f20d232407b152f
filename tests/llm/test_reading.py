"""Short answers of models are read strictly: a word of a list, a label in brackets, the odds of a first token."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.feedback.llm.reading import (
    LABELS,
    Refused,
    declines,
    odds,
    read_label,
    read_verdict,
    read_yes_no,
    strip_fences,
)

SORRY = "I'm sorry, but I can't judge these."


# -- fences and refusals -----------------------------------------------------------------------------------------------


def test_a_fence_that_is_never_closed_is_still_one():
    assert strip_fences('```json\n{"a": 1}') == '{"a": 1}'
    assert strip_fences("no fence") == "no fence"


@pytest.mark.parametrize(
    ("text", "is_refusal"),
    [
        ("I'm sorry, but I can't compare these.", True),
        ("I’m sorry, but I can’t compare these.", True),
        ("I cannot help with that.", True),
        ("As an AI, I have no preference.", True),
        ("1", False),
        ("The first. I chose it because it is sorry.", False),
        ("Both replies apologize.", False),
    ],
)
def test_refusals(text, is_refusal):
    assert declines(text) is is_refusal


# -- yes or no ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "YES",
        "yes",
        "Yes.",
        " **YES** ",
        '"YES"',
        "'yes'.",
        '"Yes."',
        "“YES”",
        "`YES`\n",
        "\n\tYeS.\n",
        "**Yes.**",
        "(YES)",
        "[YES]",
        "{yes}",
        "[[YES]]",
        "YES!",
        "YES:",
        "yes..",
        "**YES**:",
        "(Yes.)",
    ],
)
def test_a_yes_is_a_yes_however_it_is_dressed(text: str) -> None:
    assert read_yes_no(text) is True
    no = text.replace("YES", "NO").replace("Yes", "No").replace("yes", "no").replace("YeS", "nO")
    assert read_yes_no(no) is False


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "NO, not a YES", "YES, but NO", "Yes and no", "YES NO", "YESNO", "Y", "not", "1", "null", "YES! NO!",
        "The answer is YES", "YES: it rhymes.", "<think>NO</think>YES", "{\"verdict\": \"YES\"}", "ye s", "**", ".",
        "ＹＥＳ", "yeſ", "yes?", ".yes", "# YES", "(YES)(NO)", "YES:NO", "!YES", "tie", "YES -", "-YES", "YES/NO",
    ],
)  # fmt: skip
def test_what_is_neither_is_never_guessed(text: str) -> None:
    with pytest.raises(ValueError, match="is neither YES nor NO alone") as raised:
        read_yes_no(text)
    assert not isinstance(raised.value, Refused)


def test_declining_is_told_apart() -> None:
    with pytest.raises(Refused):
        read_yes_no("I'm sorry, I cannot judge this text.")


@settings(max_examples=300)
@given(st.text(max_size=12))
def test_only_letters_of_yes_and_no_decide(text: str) -> None:
    letters = "".join(char for char in text if char.isalnum()).lower()
    try:
        verdict = read_yes_no(text)
    except ValueError:
        return
    assert letters == ("yes" if verdict else "no")


# -- one of two --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "first"), (" 2.\n", "second"), ("**1**", "first"), ("[2]", "second"), ("Tie", "tie"), ('"1"', "first"),
        ("“1”", "first"), ("(TIE)!", "tie"), ("2:", "second"),
    ],
)  # fmt: skip
def test_verdicts(text, expected):
    assert read_verdict(text) == expected


@pytest.mark.parametrize("text", ["", "12", "1 and 2", "0", "3", "Reply 1", "1 because", "one", "１"])
def test_what_is_no_verdict_is_none(text):
    with pytest.raises(ValueError, match="is none of 1, 2 and tie"):
        read_verdict(text)


WORDS = [(read_yes_no, {"yes": True, "NO": False}), (read_verdict, {"1": "first", "2": "second", "tie": "tie"})]


@settings(max_examples=300)
@given(st.text("\n \"'`*[](){}“”‘’.:!", max_size=4), st.text("\n \"'`*[](){}“”‘’.:!?#,-", max_size=4))
def test_both_readers_allow_the_same_around_a_word(before: str, after: str) -> None:
    read = [_readable(reader, f"{before}{word}{after}") for reader, words in WORDS for word in words]
    assert len(set(read)) == 1


def _readable(reader: Any, text: str) -> bool:
    try:
        reader(text)
    except ValueError:
        return False
    return True


def test_odds():
    assert odds({"1": math.log(0.3), "2": math.log(0.1), "x": -0.5}) == pytest.approx(0.75)
    assert odds({" 1": -1.0}) == 1.0
    assert odds({"x": -0.1, "12": -0.2}) is None
    assert odds(None) is None
    assert odds({"1": -800.0, "2": -800.0 - math.log(3)}) == pytest.approx(0.75)
    assert odds({"1": 1e300, "2": -1.0}) == 1.0


@pytest.mark.parametrize("scale", [3, 5])
def test_every_label_is_read_at_the_end_of_reasons(scale: Any) -> None:
    for label, level in LABELS[scale].items():
        assert read_label(f"Answer 1 is [good], 2 > 1 in style.\n**[[{label}]]**", scale) == level
        assert read_label(f"[[{label}]] ... so [[{label}]].", scale) == level


@pytest.mark.parametrize(
    ("text", "scale"),
    [("[[1]] or [[2]]", 3), ("[[3]]", 3), ("", 3), ("1 is better than 2", 3), ("NO, not [1]", 3), ("[[1]]", 5),
     ("1>2", 5), ("[[1>2]] [[1>>2]]", 5), ("Answer 1", 3), ("[[A]]", 3)],
)  # fmt: skip
def test_anything_else_is_no_verdict(text: str, scale: Any) -> None:
    with pytest.raises(ValueError, match=r"wants one of|none of 1, 2") as caught:
        read_label(text, scale)
    assert not isinstance(caught.value, Refused)


@pytest.mark.parametrize("scale", [3, 5])
def test_declining_is_a_refusal_unless_a_label_is_there(scale: Any) -> None:
    with pytest.raises(Refused):
        read_label(SORRY, scale)
    assert read_label(f"{SORRY} But if I must: [[{'tie' if scale == 3 else '1=2'}]]", scale) == 0
