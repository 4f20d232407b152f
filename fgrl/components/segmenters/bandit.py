"""The whole response as one action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fgrl.base import lazy
from fgrl.kinds import Segmenter
from fgrl.registry import register
from fgrl.types import Segmentable

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


@register("bandit")
class Bandit(Segmenter):
    """One segment for the whole response: classical RLHF (segment paper, Eq. 1 and 2). In a conversation, one segment
    for each turn.

    Its last token, where the reward is read, is the end-of-sequence token; in a response that was cut off, the last
    real token.
    """

    include_eos: bool = True
    """Count the end-of-sequence token as part of the segment. If false, the reward is read one token earlier."""

    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: False everywhere, because the first token always starts a segment."""
        return torch.zeros_like(view.mask)
