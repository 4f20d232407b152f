"""Rows of TRL's formats as samples and pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.data.formats.columns import Columns
from fgrl.data.formats.converter import Converter
from fgrl.data.row import BadRow
from fgrl.types import Message, Pair


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def turns(*messages):
    return [Message(**message) for message in messages]


SYSTEM = {"role": "system", "content": "Be brief."}
IMPLICIT = {
    "text": {"chosen": "Why? Because.", "rejected": "Why? No idea."},
    "conversational": {
        "chosen": [SYSTEM, user("Why?"), assistant("Because.")],
        "rejected": [SYSTEM, user("Why?"), assistant("No idea.")],
    },
}
"""TRL's formats with implicit prompts."""


def converted(row, form, **columns):
    return Converter("data", form, Columns(**columns), row)


@pytest.mark.parametrize("name", IMPLICIT)
def test_implicit_prompts_are_found_as_trl_finds_them(name):
    trl = pytest.importorskip("trl", reason="needs trl")
    theirs = trl.extract_prompt(IMPLICIT[name])
    pair = converted(IMPLICIT[name], "preference").pair(IMPLICIT[name], 0)
    if isinstance(pair.prompt, str):
        assert theirs == {"prompt": pair.prompt, "chosen": pair.chosen, "rejected": pair.rejected}
    else:
        assert theirs["prompt"] == [message.model_dump() for message in pair.prompt]
        assert theirs["chosen"] == [assistant(pair.chosen)]
        assert theirs["rejected"] == [assistant(pair.rejected)]


@given(st.text("ab ", min_size=1), st.text("ab ", max_size=5), st.text("ab ", max_size=5))
def test_an_implicit_prompt_and_its_answers_make_the_texts_again(start, chosen, rejected):
    row = {"chosen": start + "x" + chosen, "rejected": start + "y" + rejected}
    try:
        pair = converted(row, "preference").pair(row, 0)
    except BadRow:
        assert start == " "  # the space belongs to the answers, so nothing is left
        return
    assert pair.prompt + pair.chosen == row["chosen"]
    assert pair.prompt + pair.rejected == row["rejected"]


def test_a_conversation_goes_on_from_its_prompt():
    row = {
        "prompt": [user("Hi")],
        "chosen": [assistant("Hello."), user("Why?"), assistant("Because.")],
        "rejected": [assistant("Hello."), user("Why?"), assistant("No idea.")],
    }
    assert converted(row, "preference").pair(row, 0).prompt == turns(user("Hi"), assistant("Hello."), user("Why?"))
    row = {"prompt": [user("Hi")], "chosen": [user("Hi"), assistant("a")], "rejected": [user("Hi"), assistant("b")]}
    assert converted(row, "preference").pair(row, 0).prompt == turns(user("Hi"))


def test_named_columns_win_over_usual_ones():
    row = {"id": 7, "prompt": "usual", "question": "Why?", "better": "a", "worse": "b", "chosen": "x", "rejected": "y"}
    pair = converted(row, "preference", prompt="question", chosen="better", rejected="worse", meta=["id"]).pair(row, 3)
    assert pair == Pair(id="7", prompt="Why?", chosen="a", rejected="b", meta={"id": 7})
    row = {"prompt": "Why?", "messages": [user("Other?"), assistant("Yes.")], "gold": ["a", "b"]}
    assert converted(row, "prompts", messages="messages").sample(row, 0).prompt == turns(user("Other?"))
    row["response"] = "usual"
    sample = converted(row, "sft", messages="messages", reference="gold").sample(row, 0)
    assert (sample.chosen_response.text, sample.reference) == ("Yes.", ["a", "b"])


def test_a_prompt_that_is_a_finished_conversation_loses_its_answer():
    row = {"prompt": [user("Why?"), assistant("Because.")]}
    assert converted(row, "prompts").sample(row, 0).prompt == turns(user("Why?"))


def test_long_values_are_cut_in_the_preview():
    row = {"question": "Why? " * 1000}
    with pytest.raises(DataError) as caught:
        converted(row, "prompts")
    assert len(str(caught.value)) < 400


MARKED = {"prompt": "Why?", "response": "Because it is, it is.", "marks": [[0, 7, 1], {"text": "it is", "label": -1}]}


def test_marked_passages_are_spans_of_the_response() -> None:
    sample = converted(MARKED, "sft", marks="marks").sample(MARKED, 0)
    spans = [(span.start, span.end, span.label) for span in sample.responses[0].spans]
    assert spans == [(0, 7, 1.0), (8, 13, -1.0)], "the first place of a text counts"
    assert converted(MARKED, "sft").sample(MARKED, 0).responses[0].annotations == [], "only where the column is named"


def test_a_rubric_is_texts_or_checks() -> None:
    row = {"prompt": "Why?", "wishes": ["Be brief.", {"text": "No commas.", "check": {"name": "punctuation:no_comma"}}]}
    sample = converted(row, "prompts", rubric="wishes").sample(row, 0)
    assert [(criterion.text, criterion.check and criterion.check["name"]) for criterion in sample.rubric] == [
        ("Be brief.", None), ("No commas.", "punctuation:no_comma"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("marks", "Because", 'is "Because": wants a list'),
        ("marks", [{"text": "sea", "label": 1}], 'marks "sea", which is not in the response'),
        ("marks", [[0, 99, 1]], "marks up to 99, and the response has 21 characters"),
        ("marks", [[7, 0, 1]], "ends at 0, before its start 7"),
        ("rubric", [{"check": {}}], "text: Field required"),
        (
            "rubric",
            [{"text": "x", "check": {"name": "code:checker", "sandbox": {"require": "weak"}}}],
            "sets `sandbox`",
        ),
    ],
)
def test_rows_with_broken_marks_and_rubrics(column: str, value: object, message: str) -> None:
    row = {**MARKED, column: value}
    with pytest.raises(BadRow, match=message):
        converted(row, "sft", **{column: column}).sample(row, 0)
