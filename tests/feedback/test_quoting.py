"""Quotes of a language model in a response, and the alarm for those that are not found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fgrl.base.errors import Stopped
from fgrl.feedback.llm.asking import Question
from fgrl.feedback.quoting import Quotes, QuotingAnnotator
from fgrl.feedback.templates import Prompt
from fgrl.kinds import Client
from fgrl.types import Completion, Request, Sample, Span

TEXT = "the sea, the sea"


class Silent(Client):
    def complete(self, requests: Any) -> list[Completion]:
        raise AssertionError("nothing should be asked")


class Quoting(QuotingAnnotator):
    """One question per sample."""

    placeholders = required = ("prompt",)

    def cases(self, samples: Any) -> tuple[Any, dict[str, int]]:
        return samples, {}

    def question(self, template: Prompt, case: Sample) -> Question[str]:
        return Question(Request(messages=template.fill({"prompt": str(case.prompt)}), max_tokens=3), str)

    def annotate(self, samples: Any) -> list[Sample]:
        return list(samples)


def quotes(*texts: str, occurrence: Any = "first") -> Quotes:
    own = Quotes(TEXT, occurrence, None, ignore_case=False)
    own.locate(texts)
    return own


def test_spans_are_the_distinct_places_in_order() -> None:
    assert quotes("sea", "the").spans() == [Span(start=0, end=3), Span(start=4, end=7)]
    assert quotes("sea", "sea").spans() == [Span(start=4, end=7), Span(start=13, end=16)]
    assert quotes("sea", "the sea", occurrence="all").spans() == [
        Span(start=0, end=7), Span(start=4, end=7), Span(start=9, end=16), Span(start=13, end=16)
    ]  # fmt: skip


def test_every_quote_has_a_record_whether_it_was_found_or_not() -> None:
    assert quotes("sea", "land").records() == [
        {"quote": "sea", "kind": "exact", "score": 1.0, "start": 4, "end": 7},
        {"quote": "land", "kind": None},
    ]


def test_an_answer_none_of_whose_quotes_is_found_is_an_error_for_the_model_and_is_remembered() -> None:
    own = Quotes(TEXT, "first", None, ignore_case=False)
    with pytest.raises(ValueError, match="none of the passages stands in the response, 'land' for one: copy them"):
        own.locate(["land", "hills"])
    assert own.records() == [{"quote": "land", "kind": None}, {"quote": "hills", "kind": None}]
    own.clear()
    assert own.located == []


@pytest.mark.parametrize(("limit", "rings"), [(0.4, True), (0.5, False)])
def test_the_alarm_warns_or_stops(limit: float, rings: bool, tmp_path: Any) -> None:
    (tmp_path / "prompt.txt").write_text("{prompt}")
    for alarm in ("warn", "stop"):
        annotator = Quoting(client=Silent(), prompt=str(tmp_path / "prompt.txt"), max_unmatched=limit, alarm=alarm)
        said: list[str] = []
        annotator.setup(SimpleNamespace(say=said.append))  # type: ignore[arg-type]
        if rings and alarm == "stop":
            with pytest.raises(Stopped, match="1 of 2 quotes"):
                annotator.check_unmatched([quotes("sea", "land")])
            continue
        counts = annotator.check_unmatched([quotes("sea", "land")])
        assert (counts["quotes"], counts["unmatched quotes"]) == (2, 1)
        assert [text[:22] for text in said] == ["alarm: 1 of 2 quotes ("] * rings


def test_a_plan_states_the_question_of_every_case(tmp_path: Any) -> None:
    (tmp_path / "prompt.txt").write_text("Q {prompt}")
    annotator = Quoting(client=Silent(), prompt=str(tmp_path / "prompt.txt"))
    asked = annotator.asks([Sample(id="1", prompt="a"), Sample(id="2", prompt="b")])
    assert [request.messages[0].content for request in asked] == ["Q a", "Q b"]
    assert asked == [Request(messages=request.messages, max_tokens=3) for request in asked]
    assert annotator.counts() == {}
