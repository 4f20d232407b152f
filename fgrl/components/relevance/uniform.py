"""Equal weights for all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fgrl.base import lazy
from fgrl.kinds import Checked, Relevance
from fgrl.registry import register
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("uniform")
class Uniform(Relevance):
    """Weight 1 for every token, so a token advantage that is standardized inside a response is 0."""

    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        lengths = rollout.mask.sum(dim=1).tolist()
        return [torch.ones(lengths[case.row]) for case in checked]
