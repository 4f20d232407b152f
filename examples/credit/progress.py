"""Progress of states: the turn's reward is the score of the state after the turn minus the score of the state before
it.

The environment reports the score in its `info`. If a turn has no score, its progress counts for the next turn that has
one. The difference of a turn is spread backward over this turn and the turns before it: a turn that is d turns back
gets the share gamma^d / sum of all gamma^d, so the sum is the last score minus the first. With `gamma: 0` nothing is
spread, and no turn gets a reward for later turns. Only then does the sum of a turn's reward and all later rewards not
depend on the rewards of earlier turns, as `turn_rloo` requires.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field

from fgrl import DataError, Mean, RewardWrapper, ops, register


@register("progress")
class Progress(RewardWrapper):
    """Another reward, plus the progress of the state on the last token of each turn, by the environment's score."""

    number: str = "score"
    """Name of the number in the environment's `info` that is the score of the state after the turn."""
    first: float = 0.0
    """Score of the state before the first turn."""
    gamma: float = Field(0.0, ge=0, le=1)
    """Discount of the spread: 0 gives progress to its own turn alone, 1 spreads it evenly over the turn and all turns
    before it.
    """
    weight: float = Field(1.0, ge=0)
    """Weight of the progress beside the other reward."""

    def on_tokens(self):
        return True

    def score(self, rollout):
        if rollout.turns is None:
            raise DataError("progress is that of a conversation: name an environment as `rollout.environment`")
        rewards, ends = self.reward.scored(rollout), ops.segment_ends(rollout.turn_ids)
        found = torch.zeros_like(rewards.token)
        for row, turns in enumerate(rollout.turns):
            places = ends[row].nonzero().flatten()
            found[row, places] = found.new_tensor(self.of_turns([turn.numbers.get(self.number) for turn in turns]))
        metrics = {**rewards.metrics, "progress": Mean(found.sum(), len(found))}
        return replace(
            rewards, token=rewards.token + self.weight * found, response=rewards.response + self.weight * found.sum(dim=1),
            credit_mask=rewards.credit_mask | ends, segment_ids=None, metrics=metrics,
        )  # fmt: skip

    def of_turns(self, scores):
        """Return the reward of each turn from the scores of the states after the turns; a score of None is missing."""
        before, found = self.first, [0.0] * len(scores)
        for turn, score in enumerate(scores):
            if score is None:
                continue
            weights = [self.gamma**distance for distance in range(turn + 1)]  # 0^0 is 1
            for distance, weight in enumerate(weights):
                found[turn - distance] += (score - before) * weight / sum(weights)
            before = score
        return found
