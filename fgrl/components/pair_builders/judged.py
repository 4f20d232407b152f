"""Pairs that a judge decided (the annotator `preference`)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fgrl.errors import DataError
from fgrl.kinds import PairBuilder
from fgrl.registry import register
from fgrl.types import Pair, Sample


@register("judged")
class Judged(PairBuilder):
    """The candidate that the judge preferred against the other. Ties and missing verdicts make no pair."""

    agreed_only: bool = False
    """Leave out pairs on which the judge changed its mind with the order."""
    min_margin: float = Field(0.0, ge=0, le=1)
    """Leave out pairs whose |2p - 1| is less than this, p the judge's probability that the one is better than the other: 0 for
    a judge that is torn, 1 for one that is sure."""
    finished_only: bool = False
    """Leave out candidates that ran into the length limit."""
    max_per_prompt: int | None = Field(None, ge=1)
    """At most this many pairs of one prompt, those with the widest margins; null takes all."""

    def build(self, sample: Sample) -> list[Pair]:
        if "preferences" not in sample.meta:
            raise DataError(
                f"sample {sample.id} has no meta.preferences: judged wants samples of an `annotate` stage with the "
                "annotator preference"
            )
        decided = [entry for entry in sample.meta["preferences"] if self._counts(sample, entry)]
        if self.max_per_prompt is not None:
            decided = sorted(decided, key=margin, reverse=True)[: self.max_per_prompt]
        return [self._pair(sample, number, entry) for number, entry in enumerate(decided)]

    def _counts(self, sample: Sample, entry: dict[str, Any]) -> bool:
        members = (sample.candidates[entry["first"]], sample.candidates[entry["second"]])
        return (
            entry["verdict"] in ("first", "second")
            and margin(entry) >= self.min_margin
            and (entry["agree"] is not False or not self.agreed_only)
            and (all(one.finished for one in members) or not self.finished_only)
        )

    def _pair(self, sample: Sample, number: int, entry: dict[str, Any]) -> Pair:
        better, worse = ("first", "second") if entry["verdict"] == "first" else ("second", "first")
        meta = {name: value for name, value in sample.meta.items() if name != "preferences"}
        return Pair(
            id=f"{sample.id}#{number}",
            prompt=sample.prompt,
            chosen=sample.candidates[entry[better]].text,
            rejected=sample.candidates[entry[worse]].text,
            meta={**meta, "p": entry["p"] if better == "first" else 1 - entry["p"], "agree": entry["agree"]},
        )


def margin(entry: dict[str, Any]) -> float:
    """|2p - 1|."""
    return abs(2 * entry["p"] - 1)
