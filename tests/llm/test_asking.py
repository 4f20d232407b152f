"""Rounds of questions, and reading JSON, with a client that answers from a script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr

from fgrl.base.errors import OverBudget
from fgrl.feedback.llm.asking import EMPTY, Parsed, Question, ask, parse_json, tally
from fgrl.feedback.llm.reading import Refused, declines
from fgrl.kinds import Client
from fgrl.types import Completion, Message, Request


class Scripted(Client):
    """Answers each question's first message from a script, one entry a time it is put."""

    script: dict[str, list[str | dict]]
    _rounds: list[list[Request]] = PrivateAttr(default_factory=list)

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        self._rounds.append(list(requests))
        found = []
        for request in requests:
            asked = sum(message.role == "assistant" for message in request.messages)
            answer = self.script[request.messages[0].content][asked]
            found.append(Completion(**({"text": answer, "finish": "stop"} if isinstance(answer, str) else answer)))
        return found


def question(text: str, parse=int, allow_truncated=False, **more) -> Question:
    request = Request(messages=[Message(role="user", content=text)], **more)
    return Question(request, parse, allow_truncated)


def test_only_open_questions_go_to_the_next_round_and_answers_keep_their_order():
    client = Scripted(script={"a": ["1"], "b": ["x", "2"], "c": ["x", "y", "3"], "d": ["4"]})
    asked = ask(client, [question(name) for name in "abcd"], tries=3)
    assert [one.value for one in asked] == [1, 2, 3, 4]
    assert [one.tries for one in asked] == [1, 2, 3, 1]
    assert [[request.messages[0].content for request in round_] for round_ in client._rounds] == [
        ["a", "b", "c", "d"], ["b", "c"], ["c"],
    ]  # fmt: skip
    (last,) = client._rounds[2]
    assert [message.content for message in last.messages if message.role == "assistant"] == ["x", "y"]
    assert tally(asked) == {
        "questions": 4, "answered": 4, "cached": 0, "asked again": 2, "repaired": 0, "failed": 0,
    }  # fmt: skip


def test_a_question_is_put_again_with_the_answer_and_the_reason():
    def parse(text: str) -> str:
        if text != "yes":
            raise ValueError("write yes in small letters.")
        return text

    client = Scripted(script={"q": ["YES", "yes"]})
    asked = ask(client, [question("q", parse, max_tokens=3, sample=2, temperature=0.5)])
    first, second = (round_[0] for round_ in client._rounds)
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert second.messages[1].content == "YES"
    assert "write yes in small letters. Answer once more" in second.messages[2].content
    assert second.model_copy(update={"messages": first.messages}) == first
    assert asked[0].value == "yes"


def test_an_empty_answer_is_put_again_as_a_turn_that_is_not_empty():
    client = Scripted(script={"q": [" ", "1"]})
    assert ask(client, [question("q")])[0].value == 1
    assert client._rounds[1][0].messages[1].content == EMPTY


def test_what_fails_to_the_end_is_missing_and_named():
    def parse(text: str) -> int:
        if declines(text):
            raise Refused("it declines")
        return int(text)

    script = {
        "garbage": ["x", "y"],
        "refusal": ["I'm sorry, I cannot do that.", "I can't."],
        "cut": [{"text": "1", "finish": "length"}, {"text": "2", "finish": "length"}],
        "broken": [{"error": "500"}],
        "withheld": [{"text": "1", "finish": "content_filter"}],
        "fine": ["0"],
    }
    client = Scripted(script=script)
    asked = dict(zip(script, ask(client, [question(name, parse) for name in script]), strict=True))
    assert {name: one.failure for name, one in asked.items()} == {
        "garbage": "unreadable", "refusal": "refused", "cut": "truncated", "broken": "error", "withheld": "refused",
        "fine": None,
    }  # fmt: skip
    assert [one.value for one in asked.values()] == [None] * 5 + [0]
    assert asked["broken"].reason == "500"
    assert [one.tries for one in asked.values()] == [2, 2, 2, 1, 1, 1], "errors and withheld answers are not put again"
    assert tally(list(asked.values())) == {
        "questions": 6, "answered": 1, "cached": 0, "asked again": 3, "repaired": 0, "failed": 5,
        "failed: error": 1, "failed: refused": 2, "failed: truncated": 1, "failed: unreadable": 1,
    }  # fmt: skip


def test_a_truncated_answer_counts_only_where_the_question_allows_it():
    script = {"q": [{"text": "1", "finish": "length"}]}
    assert ask(Scripted(script=script), [question("q")], tries=1)[0].failure == "truncated"
    allowed = ask(Scripted(script=script), [question("q", allow_truncated=True)], tries=1)[0]
    assert (allowed.value, allowed.failure) == (1, None)


def test_a_bug_in_parse_is_not_taken_for_a_bad_answer():
    with pytest.raises(ZeroDivisionError):
        ask(Scripted(script={"q": ["0"]}), [question("q", lambda text: 1 // int(text))])


def test_nothing_asked_asks_nothing_and_a_budget_is_passed_on():
    client = Scripted(script={})
    assert ask(client, []) == []
    assert client._rounds == []

    class Broke(Client):
        def complete(self, requests: Sequence[Request]) -> list[Completion]:
            raise OverBudget("spent")

    with pytest.raises(OverBudget):
        ask(Broke(), [question("q")])
    with pytest.raises(ValueError, match="at least once"):
        ask(client, [question("q")], tries=0)


# -- JSON --------------------------------------------------------------------------------------------------------------


class Verdict(BaseModel):
    better: int
    why: str = ""


@given(st.text() | st.text(alphabet='{}[]":, \n`\\btrue1'))
def test_any_text_is_a_verdict_or_a_value_error(text):
    with suppress(ValueError):
        assert isinstance(parse_json(text, Verdict).value, Verdict)


@given(st.integers(), st.text())
def test_json_comes_back_as_it_was_in_a_fence_or_out_of_one(better, why):
    text = json.dumps({"better": better, "why": why})
    assert parse_json(text, Verdict) == Parsed(Verdict(better=better, why=why), repaired=False)
    assert parse_json(f"Here it is:\n```json\n{text}\n```\nDone.", Verdict).value == Verdict(better=better, why=why)


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ('{"better": 2}', False),
        ('```\n{"better": 2}\n```', False),
        ("{'better': 2}", True),
        ('{"better": 2,}', True),
        ('I choose {"better": 2}.', True),
    ],
)
def test_repairs_are_counted(text, repaired):
    asked = ask(Scripted(script={"q": [text]}), [question("q", lambda answer: parse_json(answer, Verdict))])
    assert asked[0].value == Verdict(better=2)
    assert asked[0].repaired is repaired
    assert tally(asked)["repaired"] == int(repaired)


def test_different_objects_of_the_form_are_no_answer():
    with pytest.raises(ValueError, match="it has 2 different JSON objects of the form that was asked for: write one"):
        parse_json('At first {"better": 1}, no: {"better": 2}', Verdict)
    assert parse_json('{"worse": 1}, so {"better": 2}', Verdict) == Parsed(Verdict(better=2), repaired=True)


def test_a_repair_that_does_not_help_is_not_counted():
    script = {"q": ["{'better': 'none'}", '{"better": 1}']}
    asked = ask(Scripted(script=script), [question("q", lambda answer: parse_json(answer, Verdict))])
    assert (asked[0].value, asked[0].repaired, asked[0].tries) == (Verdict(better=1), False, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no idea", "no JSON"),
        ("", "no JSON"),
        ('{"why": "x"}', "better: Field required"),
        ('{"better": "left"}', "better: Input should be a valid integer"),
        ("[" * 100_000, "."),
    ],
)
def test_the_reason_names_the_place(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(text, Verdict)
