"""The turns of a conversation as actions."""

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


@register("turn")
class TurnSegmenter(Segmenter):
    """Segments that are the policy's text in one turn of a conversation with an environment, including the token that
    ends the turn. A response outside of a conversation is one segment, as with `bandit`.
    """

    include_eos: bool = True
    """Count the token that ends a turn as part of its segment. If false, the reward is read one token earlier."""

    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: False everywhere, because the first token of a turn always starts a segment."""
        return torch.zeros_like(view.mask)
