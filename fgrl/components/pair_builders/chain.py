"""Pairs of the steps of improvement chains (CH-Wang et al. 2025, section 4)."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from fgrl.base.errors import DataError
from fgrl.feedback.chains import is_chain
from fgrl.feedback.response_pairs import ResponsePairs
from fgrl.registry import register
from fgrl.types import Pair, Sample


@register("chain")
class ChainPairs(ResponsePairs):
    """Pairs of two responses of an improvement chain; the later one is preferred.

    `meta` of a pair contains `sample` (the chain's id), `step` (the place of the preferred response in the chain) and
    `kind`. For pairs of two responses that people compared, use `judged`; for fewer pairs, `max_pairs` of the stage
    `pair`.
    """

    kind: Literal["stepwise", "first_edit", "full_rewrite"] = "stepwise"
    """Responses that make a pair. `stepwise`: each step and the one before it; `first_edit`: the original response and
    the first step; `full_rewrite`: the original response and the last step.
    """

    def build(self, sample: Sample) -> list[Pair]:
        if not is_chain(sample):
            raise DataError(
                f"sample {sample.id} is not an improvement chain: the pair builder `chain` needs samples of an `annotate` stage with "
                "the annotator improvement_chain"
            )
        last = len(sample.responses) - 1
        chosen = {
            "stepwise": list(pairwise(range(last + 1))),
            "first_edit": [(0, 1)],
            "full_rewrite": [(0, last)],
        }[self.kind]
        return [
            self.pair(
                sample,
                number,
                sample.responses[after],
                sample.responses[before],
                sample=sample.id,
                step=after,
                kind=self.kind,
            )
            for number, (before, after) in enumerate(chosen)
            if self._differ(sample, before, after)
        ]

    def _differ(self, sample: Sample, before: int, after: int) -> bool:
        """Return True if the two can be a pair. The steps of a chain may return to the original text."""
        members = [sample.responses[before], sample.responses[after]]
        unfinished = self.finished_only and any(response.finished is False for response in members)
        return members[0].text != members[1].text and not unfinished
