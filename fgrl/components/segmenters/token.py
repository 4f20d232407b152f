"""Every token as a separate action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl.kinds import Segmenter
from fgrl.registry import register
from fgrl.types import Segmentable

if TYPE_CHECKING:
    from torch import Tensor


@register("token")
class Token(Segmenter):
    """Every token except the end-of-sequence token is a segment (the token-level rows of the segment paper's Table 1)."""

    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: True at every real token."""
        return view.mask
