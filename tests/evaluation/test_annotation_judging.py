"""A judge of two annotations: the order of presentation changes nothing but the bias."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fgrl.kinds import Client
from fgrl.measuring.annotation_judging import AnnotationJudge, Contest, as_shown, exchanged
from fgrl.measuring.span_sets import Labels, MarkedResponse
from fgrl.measuring.statistics import value_of
from fgrl.types import Annotation, Completion, Request, Sample, Span

LABELS = Labels({"positive": 1.0, "negative": -1.0}, by_sign=True)


class Votes(Client):
    """Answers by what it is shown."""

    like: str | None = None
    """The critique that it prefers; null: whatever is shown first."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        return [Completion(text=json.dumps(self._scores(request.messages[0].content))) for request in requests]

    def _scores(self, text: str) -> dict[str, dict[str, float]]:
        first = text.partition("SECOND")[0]
        better = self.like is None or self.like in first
        return {"annotation_1": {"score": 8 if better else 3}, "annotation_2": {"score": 3 if better else 8}}


def marked(id: int, critique: str) -> MarkedResponse:
    annotation = Annotation(
        by="somebody", critique=critique, spans=[Span(start=0, end=1), Span(start=2, end=3, label=-1)]
    )
    return MarkedResponse(
        str(id), f"p{id}", Sample(id=str(id), prompt="q"), "a b", tuple(annotation.spans), (annotation,)
    )


CONTESTS = [Contest("mine", marked(id, "mine"), marked(id, "theirs")) for id in range(40)]
EVERY = {"mine": [contest.own.prompt for contest in CONTESTS]}


def decided(tmp_path: Path, like: str | None, **settings: object) -> dict[str, float | None]:
    (tmp_path / "p.txt").write_text("FIRST {first} SECOND {second}")
    judge = AnnotationJudge.model_validate({"client": Votes(like=like), "prompt": str(tmp_path / "p.txt"), **settings})
    numbers, said, counts = judge.decide(CONTESTS, LABELS, 0, EVERY)
    assert counts["answered"] == len(said)
    return {name: value_of(number) for name, number in numbers["mine"].items()}


@pytest.mark.parametrize("orders", ["random", "both"])
@pytest.mark.parametrize(("like", "win"), [("mine", 1.0), ("theirs", 0.0)])
def test_a_judge_with_a_preference(tmp_path: Path, orders: str, like: str, win: float) -> None:
    found = decided(tmp_path, like, orders=orders)
    assert (found["win"], found["loss"], found["tie"]) == (win, 1 - win, 0)
    assert found["score"] == (8 if win else 3)
    if orders == "both":
        assert found["position_bias"] == 0


def test_a_judge_who_prefers_the_first(tmp_path: Path) -> None:
    both = decided(tmp_path, None, orders="both")
    assert (both["tie"], both["win_rate"], both["position_bias"]) == (1, 0.5, 1)
    one = decided(tmp_path, None)
    shown_second = sum(exchanged(contest, 0) for contest in CONTESTS)
    assert 0 < shown_second < len(CONTESTS), "both orders occur"
    assert one["win"] == pytest.approx(1 - shown_second / len(CONTESTS))
    assert one["position_bias"] == 1


def test_scores_within_the_margin_are_a_tie(tmp_path: Path) -> None:
    assert decided(tmp_path, "mine", margin=5.0)["tie"] == 1


def test_scores_outside_of_the_scale_cannot_be_read(tmp_path: Path) -> None:
    judge = AnnotationJudge.model_validate(
        {"client": Votes(), "prompt": str(tmp_path / "p.txt"), "criteria": ["accuracy"]}
    )
    good = {"annotation_1": {"score": 10, "accuracy": 0}, "annotation_2": {"score": 3.5, "accuracy": 2}}
    assert judge.read(json.dumps(good)).value.scores[1] == {"score": 3.5, "accuracy": 2.0}
    for broken in ({"score": 11, "accuracy": 1}, {"score": 5}, {"score": None, "accuracy": 1}):
        with pytest.raises(ValueError, match="it does not fit"):
            judge.read(json.dumps(good | {"annotation_2": broken}))


def test_what_the_judge_sees_names_nobody() -> None:
    shown = as_shown(marked(1, "too {long}"), LABELS)
    assert json.loads(shown) == {"critique": "too {long}", "positive": ["a"], "negative": ["b"]}
    assert "somebody" not in shown
