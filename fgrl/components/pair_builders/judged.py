"""Pairs decided by a judge or by people: `verdicts` of the annotator `preference` or of an annotation page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.feedback.response_pairs import ResponsePairs
from fgrl.registry import register
from fgrl.types import Pair, PairVerdict, Sample


@register("judged")
class Judged(ResponsePairs):
    """Pairs of a response that a judge or a person preferred and the other one. Ties and missing verdicts make no pair."""

    agreed_only: bool = False
    """Leave out pairs on which the judge's verdict depends on the order."""
    min_margin: float = Field(0.0, ge=0, le=1)
    """Minimum |2p - 1| of a pair, where p is the judge's probability that one response is better than the other: 0 for
    an undecided judge, 1 for a certain one. Pairs below it are left out.
    """
    max_per_prompt: int | None = Field(None, ge=1)
    """Maximum number of pairs of one prompt, the pairs with the widest margins; null takes all."""
    by: list[str] | None = None
    """Authors whose verdicts are used, people or models; null takes all."""
    several: Literal["each", "majority"] = "each"
    """Use of several people's verdicts on the same two responses: each verdict makes a pair, or there is one pair with
    the response that the majority preferred. Equal numbers of votes make no pair, and ties do not vote.
    """
    unjudged: Literal["error", "skip"] = "error"
    """Treatment of a sample without any verdict: stop with an error, or make no pair of it, because people may not have
    finished.
    """

    def build(self, sample: Sample) -> list[Pair]:
        if sample.verdicts is None:
            if self.unjudged == "skip":
                return []
            raise DataError(
                f"sample {sample.id} has no verdicts: judged needs samples of an `annotate` stage with the annotator preference, or "
                "exported from an annotation page; `unjudged: skip` leaves out those that nobody compared"
            )
        own = [verdict for verdict in sample.verdicts if self.by is None or verdict.by in self.by]
        decided = [verdict for verdict in self._voted(own) if self._counts(sample, verdict)]
        if self.max_per_prompt is not None:
            decided = sorted(decided, key=margin, reverse=True)[: self.max_per_prompt]
        return [self._pair(sample, number, verdict) for number, verdict in enumerate(decided)]

    def _voted(self, verdicts: Sequence[PairVerdict]) -> Sequence[PairVerdict]:
        return verdicts if self.several == "each" else list(majorities(verdicts))

    def _counts(self, sample: Sample, verdict: PairVerdict) -> bool:
        members = (sample.responses[verdict.first], sample.responses[verdict.second])
        return (
            verdict.verdict in ("first", "second")
            and margin(verdict) >= self.min_margin
            and not (self.agreed_only and verdict.agree is False)
            and not (self.finished_only and any(response.finished is False for response in members))
        )

    def _pair(self, sample: Sample, number: int, verdict: PairVerdict) -> Pair:
        chosen, rejected = verdict.first, verdict.second
        p = probability(verdict)
        if verdict.verdict == "second":
            chosen, rejected, p = rejected, chosen, 1 - p
        responses = sample.responses
        return self.pair(sample, number, responses[chosen], responses[rejected], p=p, agree=verdict.agree)


def majorities(verdicts: Sequence[PairVerdict]) -> Iterator[PairVerdict]:
    """Yield one verdict for every two responses with decided verdicts, in order. `p` is the share of votes for the
    first, and the verdict is missing if both have equally many.
    """
    votes: dict[tuple[int, int], Counter[int]] = {}
    for verdict in verdicts:
        if verdict.verdict in ("first", "second"):
            low, high = sorted((verdict.first, verdict.second))
            votes.setdefault((low, high), Counter())[
                verdict.first if verdict.verdict == "first" else verdict.second
            ] += 1
    for (low, high), counted in votes.items():
        ahead = counted[low] - counted[high]
        yield PairVerdict(
            first=low,
            second=high,
            verdict="first" if ahead > 0 else "second" if ahead < 0 else None,
            p=counted[low] / counted.total(),
        )


def probability(verdict: PairVerdict) -> float:
    """Return the probability that the first response is better; 1 or 0 if there is only a verdict."""
    return verdict.p if verdict.p is not None else float(verdict.verdict == "first")


def margin(verdict: PairVerdict) -> float:
    """Return |2p - 1|."""
    return abs(2 * probability(verdict) - 1)
