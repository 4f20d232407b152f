"""Comparison of two annotations of one response by a judge: wins, ties and losses (Text2Grad, appendix E)."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, PrivateAttr, create_model

from fgrl.feedback.llm.asking import Asked, Parsed, Question, ask, parse_json, summary
from fgrl.feedback.llm.prompted import Prompted
from fgrl.feedback.templates import NONE, as_text
from fgrl.measuring import pairwise
from fgrl.measuring.judging import as_record, shares
from fgrl.measuring.pairwise import Ballot
from fgrl.measuring.span_sets import Labels, MarkedResponse
from fgrl.measuring.statistics import Measured, weighted_mean

SIDES = ("annotation_1", "annotation_2")
"""Keys of the judge's answer, in the order of presentation."""


class Contest(NamedTuple):
    """Two annotations of one response."""

    name: str
    """Name of the graded set."""
    own: MarkedResponse
    other: MarkedResponse
    """Annotation of the same response in the other set."""


@dataclass(frozen=True)
class Scored:
    """Scores of the two annotations by name, in the order of presentation."""

    scores: tuple[Mapping[str, float], Mapping[str, float]]

    def ballot(self, margin: float) -> Ballot:
        """Return the ballot: the annotation with the higher overall score is better."""
        return pairwise.by_score(self.scores[0]["score"], self.scores[1]["score"], margin)


class Look(NamedTuple):
    """Row of the table of judgements: one judgement of the two annotations of a response."""

    contest: Contest
    own_first: bool
    """True if the graded set's annotation was shown first."""
    asked: Asked[Scored]

    def score(self, name: str, own: bool) -> float | None:
        """Return a score of the graded set's annotation, or of the other annotation; None if it is missing."""
        value = self.asked.value
        return None if value is None else value.scores[0 if own == self.own_first else 1][name]


class AnnotationJudge(Prompted):
    """Judge that gives each of two annotations of one response an overall `score` from 0 to 10; the higher score wins."""

    placeholders = ("prompt", "response", "reference", "first", "second")
    required = ("first", "second")

    temperature: float | None = Field(0.0, ge=0, le=100)
    versus: str | None = None
    """Name of the set of spans that the others are compared with; null: the left one."""
    criteria: list[str] = []
    """Further scores of each annotation, 0 to 10, by the names that the prompt asks for."""
    orders: Literal["random", "both"] = "random"
    """Orders of presentation. `random`: each pair is shown once, in an order drawn by the seed (as in the paper).
    `both`: in both orders, and a pair whose two orders have different winners is a tie.
    """
    margin: float = Field(0.0, ge=0)
    """Maximum difference of the overall scores for a tie."""

    _form: Any = PrivateAttr(None)

    def questions(self, contests: Sequence[Contest], labels: Labels, seed: int) -> list[Question[Scored]]:
        """Return one question for each contest, or with `orders: both` two next to each other."""
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
        """Return the scores of an answer. Raises ValueError for an answer that lacks a score or has a score outside 0
        to 10.
        """
        parsed = parse_json(text, self.form(), "it declines to compare")
        first, second = (getattr(parsed.value, side).model_dump() for side in SIDES)
        return Parsed(Scored((first, second)), parsed.repaired)

    def form(self) -> type[BaseModel]:
        """Return the schema of the judge's JSON, which may have more entries (strengths, reasons)."""
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
        """Return the numbers of each set, the judge's answers (for a file), and counts for the stage's summary.

        every: the prompts of all responses by set, including responses that could not be compared.

        `win`, `tie`, `loss`: shares of the decided comparisons; `win_rate`: wins and half of the ties. `score` and the
        criteria: means over the set's annotations, and `versus_...` over the others'. `position_bias`: among the
        judgements that chose, the share for the annotation shown first minus the share for the second. `refused`,
        `unparsed`, `failed`: shares of all questions. A comparison without a usable judgement is left out of all
        others.
        """
        asked = ask(self.client, self.questions(contests, labels, seed), self.tries)
        shown = [(contest, first is contest.own) for contest in contests for first, _ in self._shown(contest, seed)]
        looks = [Look(contest, first, outcome) for (contest, first), outcome in zip(shown, asked, strict=True)]
        numbers = {
            name: self._numbers([look for look in looks if look.contest.name == name], prompts)
            for name, prompts in every.items()
        }
        said = []
        for (name, own, _other), own_first, outcome in looks:
            about = {"set": name, "id": own.id, "response": own.text, "shown_first": own_first}
            said.append(as_record(about, outcome))
        return numbers, said, summary(self.client, asked)

    def _numbers(self, looks: Sequence[Look], every: Sequence[Hashable]) -> dict[str, Measured]:
        """Return the numbers of one set; the looks at a contest are next to each other."""
        prompts = [look.contest.own.prompt for look in looks]
        ballots = [Ballot() if look.asked.value is None else look.asked.value.ballot(self.margin) for look in looks]
        step = 2 if self.orders == "both" else 1
        # `compare` expects the second of two looks as it was shown, with the two exchanged
        of_set = [
            ballot if look.own_first or step == 2 else ballot.exchanged()
            for look, ballot in zip(looks, ballots, strict=True)
        ]
        pairs = [of_set[start : start + step] for start in range(0, len(of_set), step)]
        compared = [pairwise.compare(own, "tie").verdict for own in pairs]

        def mean(values: Sequence[float | None], of: Sequence[Hashable] = prompts) -> Measured:
            return weighted_mean(values, of, every=every)

        names: dict[pairwise.Verdict, str] = {"first": "win", "tie": "tie", "second": "loss"}
        numbers = {
            name: mean([None if verdict is None else float(verdict == wanted) for verdict in compared], prompts[::step])
            for wanted, name in names.items()
        }
        won = [None if verdict is None else pairwise.VALUES[verdict] for verdict in compared]
        numbers["win_rate"] = mean(won, prompts[::step])
        for name in dict.fromkeys(["score", *self.criteria]):
            for own, prefix in ((True, ""), (False, "versus_")):
                numbers[f"{prefix}{name}"] = mean([look.score(name, own) for look in looks])
        numbers["position_bias"] = mean([float(ballot.side) if ballot.side else None for ballot in ballots])
        return numbers | shares([look.asked for look in looks], prompts, every)


def exchanged(contest: Contest, seed: int) -> bool:
    """Return True if the graded set's annotation is shown second, when each pair is shown once. It depends only on the
    seed, the set's name and the response.
    """
    return random.Random(f"{seed} {contest.name} {contest.own.id} {contest.own.text}").random() < 0.5


def as_shown(marked: MarkedResponse, labels: Labels) -> str:
    """Return an annotation in the form that a judge reads: JSON with the critique, if there is one, and the quoted
    spans of each label. The annotator is not shown.
    """
    critiques = [annotation.critique for annotation in marked.annotations if annotation.critique is not None]
    quoted = {
        name: [marked.text[span.start : span.end] for span in marked.spans if labels.name(span.label) == name]
        for name in labels.values
    }
    shown: dict[str, Any] = {"critique": "\n\n".join(critiques)} if critiques else {}
    return json.dumps(shown | quoted, ensure_ascii=False, indent=1)
