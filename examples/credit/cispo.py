"""CISPO (arXiv 2506.13585, MiniMax-M1): the importance weight is clipped and held fixed, so that every token keeps a gradient.

    loss = - sg(min(ratio, 1 + clip_high)) A log p    averaged over all tokens of a step

sg: no gradient. PPO's clipping drops the tokens whose ratio has left its interval: these are often rare tokens that
begin a new thought.
"""

from __future__ import annotations

import torch
from pydantic import Field

from fgrl import Aggregation, GroupRelative, register


@register("cispo")
class CISPO(GroupRelative):
    """GRPO's advantages with a clipped importance weight instead of a clipped objective."""

    aggregate: Aggregation = "token_mean"
    """Each token of a step weighs the same."""
    clip_high: float | None = Field(4.0, gt=0, le=1e6)
    """Bound: weights are clipped at 1 + clip_high, and not from below (the paper tunes only this bound, and does not
    give its value); null: at 1 + clip.
    """

    def surrogate(self, logp, old_logp, advantage, mask):
        most = 1.0 + (self.clip if self.clip_high is None else self.clip_high)
        ratio = torch.where(mask, logp.detach() - old_logp, 0.0).exp()
        return torch.where(mask, -ratio.clamp(max=most) * advantage * logp, 0.0), (ratio > most) & mask
