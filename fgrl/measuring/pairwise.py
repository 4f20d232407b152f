"""Comparisons of two responses, by judges, rules or people.

A `Ballot` is one judgement of two responses in one order, by a judge or by a rule. The ballots of one or both orders
make a `PairOutcome`. A comparison of two models' answers, or a recorded verdict of a person, is a `Game`, and games of
any number of models make a table of wins, ties and losses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, TypeVar

from fgrl.base.errors import DataError
from fgrl.feedback.llm.reading import Verdict
from fgrl.measuring.answer import Answer, by_prompt
from fgrl.types import PairVerdict, Record, Sample

T = TypeVar("T")

Orders = Literal["both", "one"]
Disagreement = Literal["average", "drop", "tie"]
"""Result of two orders with different verdicts: the verdict of their mean probability, a missing verdict, or a tie."""

VALUES: dict[Verdict, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}
"""Value of a verdict for the response shown first."""
_EXCHANGED: dict[Verdict, Verdict] = {"first": "second", "second": "first", "tie": "tie"}


# -- one look ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ballot:
    """One judgement of two responses, in the order in which they were shown. Without a verdict it is missing."""

    verdict: Verdict | None = None
    p: float | None = None
    """Probability that the response shown first is better; None if and only if the verdict is missing."""
    weight: float = 1.0

    @classmethod
    def of_verdict(cls, verdict: Verdict | None, weight: float = 1.0) -> Ballot:
        """Return a ballot from a verdict without its own probability: 1, 0.5 or 0."""
        return cls() if verdict is None else cls(verdict, VALUES[verdict], weight)

    @classmethod
    def of_probability(cls, p: float | None) -> Ballot:
        """Return a ballot from a probability, with the verdict that follows from it; None is missing."""
        return cls() if p is None else cls(more_probable(p), p)

    @property
    def side(self) -> int | None:
        """Return 1 if the response shown first is better; -1 if the second is; 0 for neither; None if missing."""
        return None if self.verdict is None else int(2 * VALUES[self.verdict] - 1)

    def exchanged(self) -> Ballot:
        """Return the same ballot with the two responses exchanged."""
        if self.verdict is None or self.p is None:
            return self
        return Ballot(_EXCHANGED[self.verdict], 1 - self.p, self.weight)


def more_probable(p: float) -> Verdict:
    """Return the verdict for a probability that the first response is better."""
    return "tie" if p == 0.5 else "first" if p > 0.5 else "second"


def by_score(first: float | None, second: float | None, margin: float = 0.0) -> Ballot:
    """Return a rule's ballot: the higher score (of a verifier, True) is better, and scores that differ by at most
    `margin` are a tie.

    A missing score (None) makes the ballot missing. A rule scores each response independently, so one order is enough.
    """
    if first is None or second is None:
        return Ballot()
    difference = float(first) - float(second)
    return Ballot.of_verdict("tie" if abs(difference) <= margin else "first" if difference > 0 else "second")


def share_for_first(ballots: Iterable[Ballot]) -> float | None:
    """Return the share for the response shown first, among the ballots that chose: 0.5 is no position bias. None if
    none chose.
    """
    chosen = [ballot.side for ballot in ballots if ballot.side]
    return chosen.count(1) / len(chosen) if chosen else None


# -- one order or both -------------------------------------------------------------------------------------------------


def in_orders(first: T, second: T, orders: Orders = "both") -> list[tuple[T, T]]:
    """Return the two responses as they are shown, once for each order."""
    return [(first, second), (second, first)] if orders == "both" else [(first, second)]


@dataclass(frozen=True)
class PairOutcome:
    """Comparison of two responses, from the ballots of one or both orders."""

    verdict: Verdict | None
    """Verdict; None if it is missing."""
    p: float | None = None
    """Probability that the first is better, the mean of both orders; None if a ballot is missing."""
    agree: bool | None = None
    """True if both orders gave the same verdict; None if one is missing or was not requested."""
    weight: float = 1.0
    """Mean weight of the ballots."""

    @property
    def value(self) -> float | None:
        """Return the value of the verdict for the first response: 1, 0.5 or 0; None if it is missing."""
        return None if self.verdict is None else VALUES[self.verdict]


def compare(ballots: Sequence[Ballot], disagreement: Disagreement) -> PairOutcome:
    """Return the comparison from the ballots of one or both orders. In the second one the two responses are exchanged
    (see `in_orders`).

    If a ballot is missing, the comparison is missing.
    """
    weight = sum(ballot.weight for ballot in ballots) / len(ballots)
    aligned = [ballots[0], *(ballot.exchanged() for ballot in ballots[1:])]
    probabilities = [ballot.p for ballot in aligned if ballot.p is not None]
    if len(probabilities) < len(ballots):
        return PairOutcome(None, weight=weight)
    p = sum(probabilities) / len(probabilities)
    if len(ballots) == 1:
        return PairOutcome(aligned[0].verdict, p, weight=weight)
    if aligned[0].verdict == aligned[1].verdict:
        return PairOutcome(aligned[0].verdict, p, agree=True, weight=weight)
    settled: dict[str, Verdict | None] = {"average": more_probable(p), "drop": None, "tie": "tie"}
    return PairOutcome(settled[disagreement], p, agree=False, weight=weight)


def compare_each(ballots: Sequence[Ballot], orders: Orders, disagreement: Disagreement) -> list[PairOutcome]:
    """Return one comparison for each two responses; the ballots of its orders are next to each other."""
    step = 2 if orders == "both" else 1
    return [compare(ballots[start : start + step], disagreement) for start in range(0, len(ballots), step)]


def counts(comparisons: Sequence[PairOutcome]) -> dict[str, int]:
    """Return the numbers of compared `pairs`, of `disagreements` between two orders, of `ties`, and of `missing`
    verdicts.
    """
    return {
        "pairs": len(comparisons),
        "disagreements": sum(comparison.agree is False for comparison in comparisons),
        "ties": sum(comparison.verdict == "tie" for comparison in comparisons),
        "missing": sum(comparison.verdict is None for comparison in comparisons),
    }


# -- models ------------------------------------------------------------------------------------------------------------


class Look(Record):
    """One judgement of the two answers of a game."""

    first: str
    """Model whose answer was shown first."""
    verdict: Verdict | None
    """Verdict in which `first` is the answer that was shown first."""


class Game(Record):
    """Comparison of the answers of two models to one prompt."""

    id: str
    """Id of the prompt."""
    first: str
    """Name of a model."""
    second: str
    """Name of the other model."""
    verdict: Verdict | None
    """Verdict; None if it is missing."""
    p: float | None = None
    agree: bool | None = None
    """Agreement of both orders, as in `PairOutcome`."""
    by: str = ""
    """Judge, rule or person that decided; empty if unknown."""
    shown: list[Look] = []
    """Judgements with their order of presentation; empty if unknown."""

    @classmethod
    def of(
        cls, id: str, first: str, second: str, outcome: PairOutcome, by: str = "", shown: Iterable[Look] = ()
    ) -> Game:
        told = {"verdict": outcome.verdict, "p": outcome.p, "agree": outcome.agree}
        return cls(id=id, first=first, second=second, by=by, shown=list(shown), **told)

    @property
    def value(self) -> float | None:
        """Return the value of the verdict, as in `PairOutcome`."""
        return None if self.verdict is None else VALUES[self.verdict]


def pairings(
    answers: Mapping[str, Sequence[Answer]], versus: str | None = None
) -> Iterator[tuple[str, str, Answer, Answer]]:
    """Yield the answers that are compared: (model, opponent, answer, the opponent's answer), by model, then by prompt.

    versus: model that every other model is compared with; None: every two models are compared. Raises `DataError` if a
    model has no answer to a prompt of the other.
    """
    opponents = combinations(answers, 2) if versus is None else ((name, versus) for name in answers if name != versus)
    for name, opponent in opponents:
        for own, other in matched(name, answers[name], opponent, answers[opponent]):
            yield name, opponent, own, other


def matched(name: str, answers: Sequence[Answer], versus: str, others: Sequence[Answer]) -> list[tuple[Answer, Answer]]:
    """Return every answer with one of the other model's answers to the same prompt; if that model has fewer, they are
    used in turn.

    Raises `DataError` if it has no answer to a prompt, or if one of the models has no answers at all.
    """
    for model, own in ((name, answers), (versus, others)):
        if not own:
            raise DataError(f"{model} has no answers to judge")
    opponents = by_prompt(others)
    pairs = []
    for id, group in by_prompt(answers).items():
        if id not in opponents:
            raise DataError(f"{name} and {versus}: only {name} has an answer to prompt {id}")
        pairs += [(answer, opponents[id][i % len(opponents[id])]) for i, answer in enumerate(group)]
    return pairs


PROMPT_ID = "prompt_id"
"""Key of a sample's `meta` with the id of its prompt, if several samples compare answers to one prompt."""


def recorded_games(samples: Iterable[Sample], by: Collection[str] | None = None) -> Iterator[Game]:
    """Yield the verdicts in samples, of people for example, as games between the responses' authors (`Response.by`).

    by: people or models whose verdicts count. A recorded verdict is used unchanged. The prompt is `meta.prompt_id`, or
    else the sample; the order on the annotation page is kept. Raises `DataError` for a compared response with an
    unknown author, and for one that is compared with a response of the same author.
    """
    for sample in samples:
        for verdict in sample.verdicts or ():
            if by is None or verdict.by in by:
                yield _recorded(sample, verdict)


def _recorded(sample: Sample, verdict: PairVerdict) -> Game:
    first, second = (sample.responses[place].by for place in (verdict.first, verdict.second))
    if first is None or second is None:
        place = verdict.first if first is None else verdict.second
        raise DataError(
            f"sample {sample.id}: response {place} was compared, but `by` does not name the model it is from"
        )
    if first == second:
        raise DataError(f"sample {sample.id}: responses {verdict.first} and {verdict.second} are both from {first!r}")
    p = verdict.p if verdict.p is not None or verdict.verdict is None else VALUES[verdict.verdict]
    prompt = str(sample.meta.get(PROMPT_ID, sample.id))
    outcome = PairOutcome(verdict.verdict, p, verdict.agree)
    return Game.of(prompt, first, second, outcome, verdict.by, _recorded_looks(sample, verdict))


def _recorded_looks(sample: Sample, verdict: PairVerdict) -> list[Look]:
    """Return the judgement that the annotation page recorded: `meta.annotation.by.<person>.order` has the places of the
    responses from left to right.
    """
    at: Any = sample.meta
    for key in ("annotation", "by", verdict.by, "order"):
        at = at.get(key) if isinstance(at, Mapping) else None
    places = (verdict.first, verdict.second)
    if not isinstance(at, list) or any(place not in at for place in places):
        return []
    ballot = Ballot.of_verdict(verdict.verdict)
    left, ballot = (places[0], ballot) if at.index(places[0]) < at.index(places[1]) else (places[1], ballot.exchanged())
    return [Look(first=str(sample.responses[left].by), verdict=ballot.verdict)]
