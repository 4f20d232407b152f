"""Word differences: both texts come back, whole words and characters stay whole, and long unchanged stretches are folded."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.pages.report.differences import CONTEXT, MOST_COMPARED, Folded, Part, folded, parts, words

TEXT = st.text("ab e\u0301🐕\u200d👩🏽中文.,\n<&'", max_size=40)


def shown(before: str, after: str) -> list[tuple[str, str]]:
    return [(part.change, part.text) for part in parts(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", []),
        ("the same", "the same", [("same", "the same")]),
        ("", "new", [("added", "new")]),
        ("old", "", [("removed", "old")]),
        ("It is a cat.", "It is a dog.", [("same", "It is a "), ("removed", "cat"), ("added", "dog"), ("same", ".")]),
        # "walked" and "walks" share no letters: words are compared
        ("she walked", "she walks", [("same", "she "), ("removed", "walked"), ("added", "walks")]),
        # a word that stays between two longer changes is drawn with them
        ("absolutely nothing of value", "everything else of interest",
         [("removed", "absolutely nothing of value"), ("added", "everything else of interest")]),
        # and one that is as long as the changes is not
        ("a Constantinople b", "c Constantinople d",
         [("removed", "a"), ("added", "c"), ("same", " Constantinople "), ("removed", "b"), ("added", "d")]),
        ("你好世界", "你好中国", [("same", "你好"), ("removed", "世界"), ("added", "中国")]),
        ("cafe\u0301 ok", "cafe ok", [("removed", "cafe\u0301"), ("added", "cafe"), ("same", " ok")]),
        ("hi 👩\u200d💻!", "hi 👩!", [("same", "hi "), ("removed", "👩\u200d💻"), ("added", "👩"), ("same", "!")]),
    ],
)  # fmt: skip
def test_what_changed(before: str, after: str, expected: list[tuple[str, str]]) -> None:
    assert shown(before, after) == expected


@settings(max_examples=300, deadline=None)
@given(TEXT, TEXT)
def test_both_texts_come_back(before: str, after: str) -> None:
    every = parts(before, after)
    assert "".join(part.text for part in every if part.change != "added") == before
    assert "".join(part.text for part in every if part.change != "removed") == after
    assert all(part.text for part in every)
    changes = [part.change for part in every]
    assert all(pair != ("same", "same") for pair in itertools.pairwise(changes))
    if not any(map(unicodedata.combining, (before + " ")[0] + (after + " ")[0])):
        assert not any(unicodedata.combining(part.text[0]) for part in every), "a mark stays with its letter"


def test_no_more_than_the_first_characters_are_compared() -> None:
    every = parts("a " * MOST_COMPARED, "b " * MOST_COMPARED)
    assert sum(len(part.text) for part in every) <= 2 * MOST_COMPARED


def test_long_unchanged_stretches_are_folded() -> None:
    start, middle, end = "s " * 400, "m " * 400, "e " * 400
    short = folded(parts(f"{start}A{middle}B{end}", f"{start}X{middle}Y{end}"))
    kinds = [part.change for part in short]
    assert kinds == [
        "folded",
        "same",
        "removed",
        "added",
        "same",
        "folded",
        "same",
        "removed",
        "added",
        "same",
        "folded",
    ]
    drawn = sum(
        part.characters if isinstance(part, Folded) else len(part.text) for part in short if part.change != "added"
    )
    assert drawn == len(start + middle + end) + 2, "every character is drawn or counted"
    assert all(len(part.text) <= CONTEXT for part in short if isinstance(part, Part) and part.change == "same")


def test_short_unchanged_stretches_are_drawn_whole() -> None:
    every = parts("one two three four A", "one two three four B")
    assert folded(every) == every
    assert folded(parts("the same", "the same")) == [Part("same", "the same")]


def test_counting_words() -> None:
    assert [words(text) for text in ("", "one, two", "你好", "...", "it's")] == [0, 2, 2, 0, 2]


def test_text_is_escaped() -> None:
    (part,) = parts("<b>&", "<b>&")
    assert part.html == "&lt;b&gt;&amp;"
