"""Progress of states: the score of the state after each turn less that of the state before it is the turn's reward.

The environment says the score in its `info`. A turn without one is left to the next turn that has one. The difference of a turn is spread
backward: of its own turn and the turns before it, the one that is d turns back gets the share gamma^d / sum of all gamma^d, so that everything
adds up to the last score less the first. With `gamma: 0` nothing is spread, and no turn is paid for what later turns do: only then is the sum of
a turn's rewards and all later ones free of what earlier turns were paid, as `turn_rloo` needs it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field

from fgrl import DataError, Mean, RewardWrapper, ops, register


@register("progress")
class Progress(RewardWrapper):
    """Another reward, and on the last token of each turn the progress of the state that the environment scores."""

    number: str = "score"
    """The number of the environment's `info` that is the score of the state after the turn."""
    first: float = 0.0
    """Score of the state before the first turn."""
    gamma: float = Field(0.0, ge=0, le=1)
    """How far progress is spread backward: 0 to its own turn alone, 1 evenly over it and all turns before it."""
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
        """Return the reward of each turn from the scores of the states after the turns; None: not scored."""
        before, found = self.first, [0.0] * len(scores)
        for turn, score in enumerate(scores):
            if score is None:
                continue
            weights = [self.gamma**distance for distance in range(turn + 1)]  # 0^0 is 1
            for distance, weight in enumerate(weights):
                found[turn - distance] += (score - before) * weight / sum(weights)
            before = score
        return found
