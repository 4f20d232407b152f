"""GTPO (arXiv 2508.04349 v6; Tan et al.): token rewards from the policy's entropies, separately for successful and
failed responses.

Among the responses to one prompt, S_t are the successful and F_t the failed ones that have a token t, and H_i,t is an
entropy. Then

    r_i,t =  base r_i + entropy_weight  H_i,t |S_t| / sum_{k in S_t} H_k,t              successful (Eq. 3)
    r_i,t = -base     - entropy_weight (1/H_i,t) |F_t| / sum_{k in F_t} (1/H_k,t)       failed (Eq. 5)
    A_i,t = (r_i,t - mean) / std    over all tokens of the successful responses, and of the failed ones (Eq. 6)

and the policy gets the clipped loss of PPO, averaged over tokens (Eq. 7). Left out: GRPO-S, its variant for whole responses.
docs/credit/gtpo.md lists what differs.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from fgrl import Aggregation, GroupRelative, ops, register


def relative(value, mask, index):
    """Return `value` [B,T] divided by its mean over the responses with the same `index` [B] that have a token there."""
    total, count = (
        torch.zeros(int(index.max()) + 1, mask.shape[1], dtype=value.dtype, device=value.device).index_add(0, index, part)[index]
        for part in (torch.where(mask, value, 0.0), mask.to(value.dtype))
    )  # fmt: skip
    return torch.where(mask, value * count / total.clamp(min=1e-12), 0.0)


@register("gtpo")
class GTPO(GroupRelative):
    """GRPO with token rewards: uncertain tokens of successful responses, and certain tokens of failed responses, have a
    higher weight.
    """

    aggregate: Aggregation = "token_mean"
    """Aggregation of the loss: each token of a step counts equally (Eq. 7)."""
    base: float = Field(1.0, ge=0)
    """Weight of the outcome (alpha_1)."""
    entropy_weight: float = Field(0.1, ge=0)
    """Weight of the share in the entropies (alpha_2)."""
    success: float | None = 0.5
    """Threshold: a response with a higher reward is successful; null: the mean of the responses to its prompt."""
    standardize: Literal["apart", "together"] = "apart"
    """Standardization of token rewards of one prompt. `apart`: the rewards of successful responses and the rewards of
    failed responses each get mean 0 and spread 1 (Eq. 6). `together`: all rewards together, so that success and failure
    differ in their mean.
    """
    least_entropy: float = Field(1e-3, gt=0)
    """Minimum entropy in nats: a lower entropy counts as this, because it may be rounding."""

    def needs(self):
        return super().needs() | {"entropy"}

    def combine(self, advantage, rollout, rewards):
        mask, outcome, group = rollout.drawn, rewards.response, ops.group_index(rollout.group)
        success = (advantage > 0).any(dim=1) if self.success is None else outcome > self.success
        side = 2 * group + success
        entropy = rollout.filled("entropy").clamp(min=self.least_entropy)
        won = self.base * outcome[:, None] + self.entropy_weight * relative(entropy, mask, side)
        lost = -self.base - self.entropy_weight * relative(1 / entropy, mask, side)
        token = torch.where(success[:, None], won, lost)
        cell = (side if self.standardize == "apart" else group)[:, None].expand_as(mask)
        found = ops.standardize(token, mask, cell, unbiased=False, min_std=1e-5)
        return found, {"successful": float(success.float().mean())}
