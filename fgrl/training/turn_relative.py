"""Algorithms with an advantage for each turn of a conversation: the group is the baseline for each turn."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers
from fgrl.training.group_relative import GroupRelative
from fgrl.types import Aggregation, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


class TurnRelative(GroupRelative):
    """Base class of `turn_rloo` and its variants. Every token of a turn has the advantage of the turn, which a variant
    computes from the rewards of all turns of the conversations of a prompt. A response that is not a conversation is
    one turn.
    """

    reads_token_rewards = True

    aggregate: Aggregation = "sum"
    """Average of the loss: its sum over all tokens divided by the planned number of responses of a step (`sum`), its
    mean over tokens and then over responses (`seq_mean`), or over all tokens (`token_mean`). The last two are biased if
    the policy decides how many turns there are.
    """

    @abstractmethod
    def of_turns(self, earned: Tensor, reached: Tensor, rollout: Rollout, rewards: Rewards) -> tuple[Tensor, Numbers]:
        """Return the advantage of each turn, [B,K], and metrics.

        earned: [B,K] float64, the summed rewards of the tokens of each turn. reached: bool [B,K], the turns that a
        conversation has; all False if its reward is missing.
        """

    def combine(self, advantage: Tensor, rollout: Rollout, rewards: Rewards) -> tuple[Tensor, Numbers]:
        earned, reached = ops.to_segments(rewards.token.double(), rollout.turn_ids, "sum")
        reached = reached & ~rewards.response.isnan()[:, None]
        of_turns, metrics = self.of_turns(torch.where(reached, earned, 0.0), reached, rollout, rewards)
        return ops.spread(of_turns.to(advantage.dtype), rollout.turn_ids, "repeat"), metrics
