"""The common estimator of the credit benchmark: a token's reward minus the mean reward of the other responses to its
prompt at the same place.

    A_t^i = r_t^i - mean_{j != i} r_t^j

The baseline of a token does not depend on that token, so the gradient is unbiased for the sum of token rewards where a token's reward
does not depend on earlier tokens. An answer that has ended earns 0 at later places. A word that earns the same in all responses gets 0. The mean over the
tokens of a response would be no such baseline: with it, irrelevant words earn minus the mean, and all of them are unlearned.

Advantages are not scaled to a spread of 1: near the end few words differ in their reward, and scaling would amplify them without a
bound. (Adam's steps hardly depend on the scale.)
"""

from __future__ import annotations

from typing import Literal

import torch

from fgrl import ops
from fgrl.registry import register
from fgrl.training.group_relative import GroupRelative


@register("token_group")
class TokenGroup(GroupRelative):
    """Group-relative advantages of single tokens."""

    reads_token_rewards = True

    baseline: Literal["others", "none"] = "others"
    """Baseline of the rewards. `none`: the token's reward is not changed."""

    def combine(self, advantage, rollout, rewards):
        mask, index = rollout.mask, ops.group_index(rollout.group)
        token = torch.where(mask, rewards.token, 0.0)
        if self.baseline == "none":
            return token, {}
        others = torch.bincount(index)[index][:, None] - 1
        total = torch.zeros_like(token).index_add(0, index, token)[index]
        centred = torch.where(mask, token - (total - token) / others, 0.0)
        return centred, {"spread": float(centred[mask].square().mean().sqrt())}
