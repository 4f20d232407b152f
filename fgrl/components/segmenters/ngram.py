"""Segments of a fixed number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fgrl.base import lazy, ops
from fgrl.kinds import Segmenter
from fgrl.registry import register
from fgrl.types import Segmentable

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("ngram")
class NGram(Segmenter):
    """Segments of n tokens; the last may be shorter (segment paper, Table 4)."""

    n: int = Field(ge=1)
    """Number of tokens in a segment."""

    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: True at real tokens 0, n, 2n, .. of each response, and of each turn of a conversation."""
        nth = view.mask.long().cumsum(dim=1) - 1
        if view.turn is not None:
            nth = nth - torch.where(ops.turn_starts(view.turn), nth, 0).cummax(dim=1).values
        return view.mask & (nth % self.n == 0)
