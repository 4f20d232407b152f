"""Credit of known quality over turns, and the common estimator of the ladder over turns."""

from __future__ import annotations

import math
import random
from typing import Literal

import torch

from fgrl import DataError, Reward, Rewards, TurnRelative, ops, register


@register("turn_credit")
class TurnCredit(Reward):
    """Reward that distributes what a conversation earned over its turns."""

    credit: Literal["oracle", "even", "last", "random"] = "oracle"
    """Distribution of the credit. `oracle`: the change of the state's value by each turn. `even`: equal for every token
    of the policy. `last`: on the last turn. `random`: random shares of the total.
    """

    def on_tokens(self):
        return True

    def score(self, rollout):
        if rollout.turns is None or rollout.turn_reward is None:
            raise DataError("turn_credit is that of a conversation: name an environment as `rollout.environment`")
        drawn, ends = rollout.drawn, ops.segment_ends(rollout.turn_ids)
        total = torch.where(ends, rollout.turn_reward, 0.0).sum(dim=1)
        if self.credit == "even":
            token = torch.where(drawn, (total / drawn.sum(dim=1).clamp(min=1))[:, None], 0.0)
            return Rewards(total, token, drawn)
        token = torch.zeros(drawn.shape, device=drawn.device)
        for row, turns in enumerate(rollout.turns):
            places = ends[row].nonzero().flatten()
            token[row, places] = token.new_tensor(self.of_turns(turns, float(total[row])))
        return Rewards(total, token, ends)

    def of_turns(self, turns, total):
        """Return the reward of each turn."""
        if self.credit == "oracle":
            return [turn.numbers["credit"] for turn in turns]
        if self.credit == "last":
            return [*[0.0] * (len(turns) - 1), total]
        draw = random.Random(repr([(turn.text, turn.observation) for turn in turns]))
        shares = [-math.log(1.0 - draw.random()) for _ in turns]
        return [total * share / sum(shares) for share in shares]


@register("turn_group")
class TurnGroup(TurnRelative):
    """Advantage of a turn: its reward minus the mean reward of the other conversations of its prompt in the same turn.
    If no other conversation reached the turn, it is the reward.
    """

    def of_turns(self, earned, reached, rollout, rewards):
        return ops.leave_one_out(earned, reached, rollout.group)[0], {}
