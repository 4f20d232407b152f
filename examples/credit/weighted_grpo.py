"""GRPO with a reward that also gives each token a weight: the advantage of a response is multiplied by it."""

from __future__ import annotations

from fgrl import GroupRelative, Mean, register


@register("weighted_grpo")
class WeightedGRPO(GroupRelative):
    """Group-relative advantages times the reward's column "weight" [B,T]."""

    columns_read = frozenset({"weight"})

    def combine(self, advantage, rollout, rewards):
        weight = rewards.column("weight")
        heaviest = (weight * rollout.drawn).amax(dim=1)
        return advantage * weight, {"heaviest_weight": Mean(heaviest.sum(), len(heaviest))}
