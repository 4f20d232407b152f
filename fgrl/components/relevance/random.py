"""Random weights, for comparison ("Rubrics to Tokens", Table 4)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from fgrl.base import lazy
from fgrl.kinds import Checked, Relevance
from fgrl.registry import register
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("random")
class RandomRelevance(Relevance):
    """Each token's weight is drawn from the uniform distribution on [0, 1).

    The draw depends only on the seed, the criterion and the response, not on earlier draws, nor on the order or
    batching of responses.
    """

    seed: int = Field(0, ge=0)
    """Seed of the weights: another seed draws other weights."""

    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        ids = [row[real].tolist() for row, real in zip(rollout.response_ids, rollout.mask, strict=True)]
        weights: list[Tensor | None] = []
        for case in checked:
            key = f"{self.seed}\n{case.criterion.model_dump_json()}\n{ids[case.row]}".encode()
            number = int.from_bytes(hashlib.blake2b(key, digest_size=7).digest())
            weights.append(torch.rand(len(ids[case.row]), generator=torch.Generator().manual_seed(number)))
        return weights
