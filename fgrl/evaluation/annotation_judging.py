"""A judge compares two annotations of one response: wins, ties and losses (Text2Grad, appendix E)."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PrivateAttr, create_model

from fgrl.evaluation import pairwise
from fgrl.evaluation.judging import NONE
from fgrl.evaluation.pairwise import Ballot
from fgrl.evaluation.span_sets import Labels, MarkedResponse
from fgrl.evaluation.statistics import Measured, weighted_mean
from fgrl.llm.asking import FAILURES, Asked, Parsed, Question, ask, parse_json, summary
from fgrl.llm.prompted import Prompted
from fgrl.templates import as_text

SIDES = ("annotation_1", "annotation_2")
"""Keys of the judge's answer, in the order of presentation."""


@dataclass(frozen=True)
class Contest:
    """Two annotations of one response."""

    name: str
    """The set that is graded."""
    own: MarkedResponse
    other: MarkedResponse
    """The same response as another set marks it."""


@dataclass(frozen=True)
class Scored:
    """The scores of the two annotations by name, in the order of presentation."""

    scores: tuple[Mapping[str, float], Mapping[str, float]]

    def ballot(self, margin: float) -> Ballot:
        """Return the annotation with the higher overall score is better."""
        return pairwise.by_score(self.scores[0]["score"], self.scores[1]["score"], margin)


class AnnotationJudge(Prompted):
    """A judge who gives each of two annotations of one response an overall `score` from 0 to 10; the higher one
    wins.
    """

    placeholders = ("prompt", "response", "reference", "first", "second")
    required = ("first", "second")

    temperature: float | None = Field(0.0, ge=0, le=100)
    versus: str | None = None
    """The set of spans that the others are compared with; null: the left one."""
    criteria: list[str] = []
    """Further scores of each annotation, 0 to 10, by the names that the prompt asks for."""
    orders: Literal["random", "both"] = "random"
    """`random`: each pair is shown once, in an order drawn by the seed (as in the paper). `both`: in both orders, and a
    pair whose two orders name different winners is a tie.
    """
    margin: float = Field(0.0, ge=0)
    """Overall scores that differ by at most this much are a tie."""

    _form: Any = PrivateAttr(None)

    def questions(self, contests: Sequence[Contest], labels: Labels, seed: int) -> list[Question[Scored]]:
        """One for each contest, or with `orders: both` two next to each other."""
        template = self.template()
        plan: list[Question[Scored]] = []
        for contest in contests:
            for first, second in self._shown(contest, seed):
                reference = contest.own.sample.reference
                references = [reference] if isinstance(reference, str) else reference or []
                values = {
                    "prompt": as_text(contest.own.sample.prompt),
                    "response": contest.own.text,
                    "reference": "\n\n".join(references) or NONE,
                    "first": as_shown(first, labels),
                    "second": as_shown(second, labels),
                }
                schema = self.form().model_json_schema()
                request = self.request(template, values, json_schema=schema, about=contest.own.sample.id)
                plan.append(Question(request, self.read))
        return plan

    def _shown(self, contest: Contest, seed: int) -> list[tuple[MarkedResponse, MarkedResponse]]:
        if self.orders == "both":
            return pairwise.in_orders(contest.own, contest.other)
        return [(contest.other, contest.own) if exchanged(contest, seed) else (contest.own, contest.other)]

    def read(self, text: str) -> Parsed[Scored]:
        """Return the scores of an answer. Raises ValueError for one that lacks a score or has one outside of 0 to
        10.
        """
        parsed = parse_json(text, self.form(), "it declines to compare")
        first, second = (getattr(parsed.value, side).model_dump() for side in SIDES)
        return Parsed(Scored((first, second)), parsed.repaired)

    def form(self) -> type[BaseModel]:
        """Return the required form of the judge's JSON, which may contain more (strengths, reasons)."""
        if self._form is None:
            score = Annotated[float, Field(ge=0, le=10)]
            fields: dict[str, Any] = dict.fromkeys(dict.fromkeys(["score", *self.criteria]), (score, ...))
            marks = create_model("Scores", **fields)
            sides: dict[str, Any] = dict.fromkeys(SIDES, (marks, ...))
            self._form = create_model("Comparison", **sides)
        return self._form

    def decide(
        self, contests: Sequence[Contest], labels: Labels, seed: int, every: Mapping[str, Sequence[Hashable]]
    ) -> tuple[dict[str, dict[str, Measured]], list[dict[str, Any]], dict[str, Any]]:
        """Return the numbers of each set, what the judge answered (for a file), and counts for the stage's summary.

        every: by set, the prompts of all responses, whether they could be compared or not.

        `win`, `tie`, `loss`: shares of the decided comparisons; `win_rate`: wins and half of the ties. `score` and the
        criteria: means over the set's annotations, and `versus_...` over the others'. `position_bias`: of the
        judgements that chose, the share for the annotation shown first minus the share for the second. `refused`,
        `unparsed`, `failed`: shares of all questions. A comparison without a usable judgement is left out of all
        others.
        """
        asked = ask(self.client, self.questions(contests, labels, seed), self.tries)
        step = 2 if self.orders == "both" else 1
        numbers: dict[str, dict[str, Measured]] = {}
        for name, prompts in every.items():
            places = [place for place, contest in enumerate(contests) if contest.name == name]
            own = [
                [self._aligned(contests[i], asked[i * step + look], look, seed) for look in range(step)] for i in places
            ]
            raw = [asked[i * step + look] for i in places for look in range(step)]
            clusters = [contests[i].own.prompt for i in places]
            numbers[name] = self._numbers(own, raw, clusters, list(prompts))
        said = [
            {
                "set": contest.name, "id": contest.own.id, "response": contest.own.text,
                "shown_first": self._first_is_own(contest, look, seed), "said": outcome.completion.text,
                **({} if outcome.failure is None else {"failure": outcome.failure, "reason": outcome.reason}),
            }
            for i, contest in enumerate(contests)
            for look, outcome in enumerate(asked[i * step : (i + 1) * step])
        ]  # fmt: skip
        return numbers, said, summary(self.client, asked)

    # ------------------------------------------------------------------------------------------------------------------

    def _first_is_own(self, contest: Contest, look: int, seed: int) -> bool:
        """Return True if the graded set's annotation was shown first."""
        return look == 0 if self.orders == "both" else not exchanged(contest, seed)

    def _aligned(self, contest: Contest, outcome: Asked[Scored], look: int, seed: int) -> tuple[Scored, bool] | None:
        """Return the scores with the graded set's first, and whether it was shown first; None where they are
        missing.
        """
        if outcome.value is None:
            return None
        first, second = outcome.value.scores
        own_first = self._first_is_own(contest, look, seed)
        return Scored((first, second) if own_first else (second, first)), own_first

    def _numbers(
        self,
        looks: Sequence[Sequence[tuple[Scored, bool] | None]],
        asked: Sequence[Asked[Scored]],
        clusters: Sequence[Hashable],
        every: Sequence[Hashable],
    ) -> dict[str, Measured]:
        """Return the numbers of one set: `looks` at each contest, aligned."""
        ballots = [[Ballot() if seen is None else seen[0].ballot(self.margin) for seen in contest] for contest in looks]
        # `compare` expects the second look with the two exchanged
        compared = [
            pairwise.compare([own[0], *(ballot.exchanged() for ballot in own[1:])], "tie").verdict for own in ballots
        ]

        def mean(values: Sequence[float | None], of: Sequence[Hashable] = clusters) -> Measured:
            return weighted_mean(values, of, every=every)

        names: dict[pairwise.Verdict, str] = {"first": "win", "tie": "tie", "second": "loss"}
        numbers = {
            name: mean([None if verdict is None else float(verdict == wanted) for verdict in compared])
            for wanted, name in names.items()
        }
        numbers["win_rate"] = mean([None if verdict is None else pairwise.VALUES[verdict] for verdict in compared])
        seen = [
            (look, cluster)
            for contest, cluster in zip(looks, clusters, strict=True)
            for look in contest
            if look is not None
        ]
        for name in dict.fromkeys(["score", *self.criteria]):
            for side, prefix in enumerate(("", "versus_")):
                values = [look[0].scores[side][name] for look, _cluster in seen]
                numbers[f"{prefix}{name}"] = mean(values, [cluster for _look, cluster in seen])
        sides = [look[0].ballot(self.margin).side for look, _cluster in seen]
        bias = [
            None if not side else float(side if own_first else -side)
            for side, ((_scored, own_first), _cluster) in zip(sides, seen, strict=True)
        ]
        numbers["position_bias"] = mean(bias, [cluster for _look, cluster in seen])
        each = [cluster for contest, cluster in zip(looks, clusters, strict=True) for _look in contest]
        for name, failures in FAILURES.items():
            numbers[name] = mean([float(outcome.failure in failures) for outcome in asked], each)
        return numbers


def exchanged(contest: Contest, seed: int) -> bool:
    """Return True if the graded set's annotation is shown second, where each pair is shown once. Decided by the seed,
    the set's name and the response alone.
    """
    return random.Random(f"{seed} {contest.name} {contest.own.id} {contest.own.text}").random() < 0.5


def as_shown(marked: MarkedResponse, labels: Labels) -> str:
    """Return an annotation as a judge reads it: JSON with the critique, where there is one, and the quoted spans of
    each label. Who wrote it is not shown.
    """
    critiques = [annotation.critique for annotation in marked.annotations if annotation.critique is not None]
    quoted = {
        name: [marked.text[span.start : span.end] for span in marked.spans if labels.name(span.label) == name]
        for name in labels.values
    }
    shown: dict[str, Any] = {"critique": "\n\n".join(critiques)} if critiques else {}
    return json.dumps(shown | quoted, ensure_ascii=False, indent=1)
