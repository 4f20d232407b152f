"""Group-in-group policy optimization, GiGPO (arXiv 2505.10978): turns are compared with others that began in the same state.

    A_i,k = z(R_i) + step_weight z(G_i,k)    G_i,k = r_i,k + gamma G_i,k+1

z is the difference to the mean over the standard deviation: of the return R_i over the conversations of a prompt, and
of the reward from turn k on, over all turns of these conversations that began in the same state (an anchor), at any
time. The state before the first turn is the prompt; the state before another turn is the last answer of the
environment. A turn that is alone in its state has only the first term. A standard deviation depends on the very choice
that it divides, so the gradient is biased (docs/credit-over-turns.md).
"""

from __future__ import annotations

import torch
from pydantic import Field

from fgrl import Aggregation, DataError, Mean, TurnRelative, ops, register


@register("gigpo")
class GiGPO(TurnRelative):
    """GRPO with a second group for each turn: the turns of the prompt's conversations that began in the same state."""

    aggregate: Aggregation = "seq_mean"
    """Aggregation of the loss: the average over the tokens of a conversation, then over conversations, as in GRPO."""
    step_weight: float = Field(1.0, ge=0)
    """Weight of the comparison inside a state (omega)."""
    gamma: float = Field(0.95, ge=0, le=1)
    """Discount of rewards per turn in the comparison inside a state."""

    def of_turns(self, earned, reached, rollout, rewards):
        to_come = earned.clone()
        for turn in range(earned.shape[1] - 2, -1, -1):
            to_come[:, turn] += self.gamma * to_come[:, turn + 1]
        state = self.states(rollout, reached)
        of_state = ops.standardize(to_come, reached, state, unbiased=True)
        alone = torch.bincount(state[reached])[state] == 1
        whole = ops.group_advantage(earned.sum(dim=1).masked_fill(~reached.any(dim=1), torch.nan), rollout.group)
        advantage = torch.where(reached, whole[:, None] + self.step_weight * of_state, 0.0)
        return advantage, {"alone_in_state": Mean((alone & reached).sum(), reached.sum())}

    def states(self, rollout, reached):
        """Return a number for the state in which each turn began, long [B,K]: equal states of a group have the same
        number.
        """
        if rollout.turns is None:
            raise DataError("gigpo compares the states of conversations: name an environment as `rollout.environment`")
        numbers = {}
        state = torch.zeros_like(reached, dtype=torch.long)
        for row, (group, turns) in enumerate(zip(rollout.group.tolist(), rollout.turns, strict=True)):
            said = [None, *(turn.observation for turn in turns[:-1])]
            for turn, before in enumerate(said):
                state[row, turn] = numbers.setdefault((group, before), len(numbers))
        return state
