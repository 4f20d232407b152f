"""Rows that do not fit, their values, and prompts in their two shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fgrl.base.errors import DataError
from fgrl.data.row import BadRow, Row, has
from fgrl.data.row_reader import Omissions, RowReader
from fgrl.data.rubrics.demand import CODE_CHECKER, Demand, Tally
from fgrl.data.turns import as_one_text, as_prompt, as_text_or_turns, as_turns
from fgrl.data.values import as_list, check_lengths, parsed
from fgrl.types import Message

QUESTION = {"role": "user", "content": "Why?", "weight": 3}
ANSWER = {"role": "assistant", "content": "Because."}


def test_a_row_that_does_not_fit_stops_or_is_a_text() -> None:
    class Two(RowReader):
        def rows(self) -> tuple[str, Sequence[Row]]:
            return "here", [{}, {}]

        def read(self) -> Any:
            return iter(())

    def convert(row: Row, number: int) -> int:
        if number == 1:
            raise BadRow("no text")
        return number

    with pytest.raises(DataError, match=r"^here: row 2: no text \(`bad_rows: drop` leaves such rows out"):
        list(Two().records("here", [{}, {}], [0, 1], convert, Omissions()))
    omissions = Omissions()
    assert list(Two(bad_rows="drop").records("here", [{}, {}], [0, 1], convert, omissions)) == [0]
    assert "here: row 2: no text" in omissions.summary(2)


def test_omissions_in_words() -> None:
    omissions = Omissions()
    assert not omissions
    omissions.add("without an answer")
    omissions.add_misfit("row 3: no text")
    omissions.add_misfit("row 5: null")
    assert omissions
    assert str(omissions) == "1 without an answer, 2 that do not fit"
    assert omissions.first_misfit == "; the first that does not fit: row 3: no text"


def test_nested_columns() -> None:
    row = {"answer": {"value": 1}, "passages": [{"text": "a"}], "a.b": 2, "null": None}
    assert [name for name in ("answer.value", "answer.name", "passages.text", "a.b", "a", "null.x") if has(row, name)] == [
        "answer.value", "passages.text", "a.b", "null.x",
    ]  # fmt: skip


def test_prompts_as_text_or_turns() -> None:
    turns = as_turns([QUESTION, ANSWER], "prompt")
    assert turns == [Message(role="user", content="Why?"), Message(role="assistant", content="Because.")]
    assert as_text_or_turns([QUESTION, ANSWER], "prompt") == turns
    assert as_prompt([QUESTION, ANSWER], "prompt") == turns[:1]
    assert as_prompt([ANSWER], "prompt") == turns[1:], "an answer alone is all there is"
    assert as_prompt("Why?", "prompt") == "Why?"
    assert (as_one_text(turns), as_one_text("Why?")) == ("Why?\n\nBecause.", "Why?")


@pytest.mark.parametrize("value", [None, 3, [], ["Why?"], [{"role": "user"}], [{"role": "user", "content": None}]])
def test_what_is_no_prompt(value: Any) -> None:
    for read in (as_turns, as_text_or_turns, as_prompt):
        with pytest.raises(BadRow, match=r'"prompt" is .*: wants text or a list of messages'):
            read(value, "prompt")
    with pytest.raises(BadRow, match='"prompt" is empty'):
        as_text_or_turns(" ", "prompt")


def test_lists_and_mappings_that_are_texts() -> None:
    assert parsed("{'a': None, \"b\": [1]}", "x") == parsed('{"a": null, "b": [1]}', "x") == {"a": None, "b": [1]}
    assert parsed(3, "x") == 3
    assert as_list('["a"]', "x") == as_list(("a",), "x") == ["a"]
    for value in ("no list", '"a"', "3", None, {"a": 1}):
        with pytest.raises(BadRow, match='"x" is'):
            as_list(value, "x")
    check_lengths(ids=[1, 2], kwargs=[3, 4])
    with pytest.raises(BadRow, match="2 ids, 1 kwargs: they belong together one by one"):
        check_lengths(ids=[1, 2], kwargs=[3])


def test_criteria_are_counted_by_what_decides_them() -> None:
    tally = Tally(prompts=1)
    tally.add(Demand("a", {"name": "punctuation:no_comma"}), kept=True)
    tally.add(Demand("b", {"name": CODE_CHECKER}), kept=True)
    tally.add(Demand("c", kind="some:rule", why="other options"), kept=True)
    tally.add(Demand("d", kind="some:rule"), kept=False)
    tally.add(Demand("e", hard=False), kept=True)
    tally.add(Demand("f", hard=False), kept=False)
    assert tally.numbers() == {
        "prompts": 1, "criteria": 4, "by rules": 1, "by their own code": 1, "soft": 1, "hard without a checker": 2,
        "namely": {"some:rule (other options)": 1, "some:rule": 1},
    }  # fmt: skip
    assert tally.omissions() == "; left out criteria: 1 hard without a checker, 1 soft"
    tally.left_out.add_misfit("row 7: null")
    assert tally.summary().endswith("; left out rows: 1 that do not fit; the first that does not fit: row 7: null")
