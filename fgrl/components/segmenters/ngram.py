"""Segments of a fixed number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fgrl.kinds import Segmenter
from fgrl.registry import register
from fgrl.types import Segmentable

if TYPE_CHECKING:
    from torch import Tensor


@register("ngram")
class NGram(Segmenter):
    """A segment is n tokens; the last may be shorter (segment paper, Table 4)."""

    n: int = Field(ge=1)
    """Number of tokens in a segment."""

    def starts(self, view: Segmentable) -> Tensor:
        """Bool [B,T]: at real tokens 0, n, 2n, .. of each response."""
        nth = view.mask.long().cumsum(dim=1) - 1
        return view.mask & (nth % self.n == 0)
