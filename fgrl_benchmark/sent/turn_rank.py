"""Ranks over turns: what a conversation earns from a turn on, as its rank among those of its prompt that reached the turn."""

from __future__ import annotations

import torch

from fgrl import TurnRelative, register


@register("turn_rank")
class TurnRank(TurnRelative):
    """The share of the others that earn less from this turn on, less the share that earn more."""

    def of_turns(self, earned, reached, rollout, rewards):
        to_come = earned.flip(1).cumsum(dim=1).flip(1)
        same = rollout.group[:, None] == rollout.group[None]
        others = same[:, :, None] & reached[:, None] & reached[None] & ~torch.eye(len(same), dtype=torch.bool)[:, :, None]
        wins = (to_come[:, None] - to_come[None]).sign() * others
        return torch.where(reached, wins.sum(dim=1) / others.sum(dim=1).clamp(min=1), 0.0), {}
