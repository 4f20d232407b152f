"""Weights that mean nothing, for comparison ("Rubrics to Tokens", Table 4)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from fgrl import lazy
from fgrl.kinds import Checked, Relevance
from fgrl.registry import register
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("random")
class RandomRelevance(Relevance):
    """Each token's weight is drawn evenly from 0 to 1.

    The draw hangs on the seed, the criterion and the response alone: neither what was scored before nor the order or the
    batching of responses changes it.
    """

    seed: int = Field(0, ge=0)
    """Other seeds draw other weights."""

    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        ids = [row[real].tolist() for row, real in zip(rollout.response_ids, rollout.mask, strict=True)]
        found: list[Tensor | None] = []
        for one in checked:
            key = f"{self.seed}\n{one.criterion.model_dump_json()}\n{ids[one.row]}".encode()
            number = int.from_bytes(hashlib.blake2b(key, digest_size=7).digest())
            found.append(torch.rand(len(ids[one.row]), generator=torch.Generator().manual_seed(number)))
        return found
