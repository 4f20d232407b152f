"""Rewards from an environment for the turns of a conversation."""

from __future__ import annotations

from fgrl.base import lazy, ops
from fgrl.base.errors import DataError
from fgrl.kinds import Reward
from fgrl.registry import register
from fgrl.types import Rewards, Rollout

torch = lazy.load("torch")


@register("environment")
class EnvironmentReward(Reward):
    """Rewards of an environment, each on the last token of its turn. The reward of a response is their sum."""

    def on_tokens(self) -> bool:
        return True

    def score(self, rollout: Rollout) -> Rewards:
        if rollout.turn_reward is None or rollout.turn is None:
            raise DataError(
                "the reward `environment` needs conversations: name an environment as `rollout.environment`"
            )
        ends = ops.segment_ends(rollout.turn)
        token = torch.where(ends, rollout.turn_reward, 0.0)
        return Rewards(response=token.sum(dim=1), token=token, credit_mask=ends)
