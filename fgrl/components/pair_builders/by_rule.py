"""Answers that keep a rule against answers that break it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from fgrl.errors import DataError
from fgrl.kinds import PairBuilder, Verifier
from fgrl.registry import register
from fgrl.types import Candidate, Pair, Sample


@register("by_rule")
class ByRule(PairBuilder):
    """One prompt's candidates that keep a rule are preferred to those that break it.

    A text that was drawn several times is one candidate. Pairs use different candidates as far as there are any; then
    members repeat, those used least first, and no pair twice. Which ones depends on `seed` and the sample's id alone.
    Candidates of which the rule is undecided are left out.
    """

    rule: Verifier
    """The rule."""
    max_per_prompt: int = Field(4, ge=1)
    """At most this many pairs of one prompt."""
    match_length: bool = False
    """Of the candidates at hand take those whose lengths (in characters) are closest, so that the pairs differ in the
    rule and less in length, which a reward model would learn instead."""
    finished_only: bool = False
    """Leave out candidates that ran into the length limit."""
    seed: int = 0
    """Which candidates are taken when there are more than needed."""

    def setup(self, run: Any) -> None:
        self.rule.setup(run)

    def build(self, sample: Sample) -> list[Pair]:
        if not sample.candidates:
            raise DataError(f"sample {sample.id} has no candidates: by_rule wants samples of a `sample` stage")
        kept, broken = self._sides(sample.candidates)
        places = [(i, j) for i in range(len(kept)) for j in range(len(broken))]
        random.Random(f"{self.seed} {sample.id}").shuffle(places)
        used_kept, used_broken = [0] * len(kept), [0] * len(broken)
        pairs: list[Pair] = []
        while places and len(pairs) < self.max_per_prompt:

            def cost(place: tuple[int, int]) -> tuple[int, int]:
                i, j = place
                apart = abs(len(kept[i].text) - len(broken[j].text)) if self.match_length else 0
                return used_kept[i] + used_broken[j], apart

            best = min(places, key=cost)
            places.remove(best)
            used_kept[best[0]] += 1
            used_broken[best[1]] += 1
            pairs.append(self._pair(sample, len(pairs), kept[best[0]], broken[best[1]]))
        return pairs

    def _sides(self, candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
        """Distinct candidates that keep the rule, and that break it."""
        distinct: dict[str, Candidate] = {}
        for candidate in candidates:
            if candidate.finished or not self.finished_only:
                distinct.setdefault(candidate.text.strip(), candidate)
        kept: list[Candidate] = []
        broken: list[Candidate] = []
        for candidate in distinct.values():
            verdict = self.rule.verdict(candidate.text)
            if verdict is not None:
                (kept if verdict else broken).append(candidate)
        return kept, broken

    def _pair(self, sample: Sample, number: int, kept: Candidate, broken: Candidate) -> Pair:
        meta = {
            **sample.meta,
            "chosen_score": kept.score,
            "rejected_score": broken.score,
            "broken": [rule for rule, keeps in self.rule.verdicts(broken.text).items() if keeps is False],
        }
        return Pair(id=f"{sample.id}#{number}", prompt=sample.prompt, chosen=kept.text, rejected=broken.text, meta=meta)
