"""Pairs of every two responses to a prompt; the response with the higher score is preferred (RLA, Algorithm 1)."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Literal

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.feedback.response_pairs import ResponsePairs, distinct
from fgrl.registry import register
from fgrl.types import Pair, Response, Sample


@register("all_ranked")
class AllRanked(ResponsePairs):
    """All K(K-1)/2 pairs of a prompt's K scored responses. A response without a score makes no pair."""

    ties: Literal["first", "drop", "random"] = "first"
    """Treatment of two responses with the same score. `first`: the response that was drawn first is preferred (like >=
    in Algorithm 1). `drop`: no pair. `random`: either one (by `seed` and the sample's id).
    """
    min_margin: float = Field(0.0, ge=0)
    """Minimum difference of the scores of a pair; pairs below it are left out."""
    duplicates: Literal["keep", "merge"] = "keep"
    """Treatment of a text that was drawn several times: as several responses (of which two never make a pair), or as
    one.
    """
    max_per_prompt: int | None = Field(None, ge=1)
    """Maximum number of pairs of one prompt, the pairs with the widest margins; null takes all."""
    seed: int = 0
    """Seed of `ties: random`."""

    @model_validator(mode="after")
    def _check(self) -> AllRanked:
        if self.min_margin and self.ties != "drop":
            raise ValueError(f"min_margin {self.min_margin} leaves no ties: set `ties: drop`, not {self.ties}")
        return self

    def build(self, sample: Sample) -> list[Pair]:
        usable = [response for response in self.usable(sample) if response.score is not None]
        if all(response.score is None for response in sample.responses):
            raise DataError(
                f"sample {sample.id}: no response has a score: all_ranked wants samples of an `annotate` stage"
            )
        draw = random.Random(f"{self.seed} {sample.id}")
        ranked = [
            pair
            for first, second in combinations(usable if self.duplicates == "keep" else distinct(usable), 2)
            if (pair := self._ranked(first, second, draw)) is not None
        ]
        if self.max_per_prompt is not None:
            ranked = sorted(ranked, key=lambda pair: margin(*pair), reverse=True)[: self.max_per_prompt]
        return [
            self.pair(sample, number, chosen, rejected, chosen_score=chosen.score, rejected_score=rejected.score)
            for number, (chosen, rejected) in enumerate(ranked)
        ]

    def _ranked(self, first: Response, second: Response, draw: random.Random) -> tuple[Response, Response] | None:
        """Return chosen and rejected response; None if the two make no pair."""
        if first.text.strip() == second.text.strip() or abs(margin(first, second)) < self.min_margin:
            return None
        if margin(first, second):
            return (first, second) if margin(first, second) > 0 else (second, first)
        if self.ties == "drop":
            return None
        return (first, second) if self.ties == "first" or draw.random() < 0.5 else (second, first)


def margin(first: Response, second: Response) -> float:
    """Return the score of the first response minus the score of the second."""
    assert first.score is not None
    assert second.score is not None
    return first.score - second.score
