"""On-policy self-distillation over the vocabulary: the loss is the KL to the policy that is told the answer, of each token's distribution."""

from __future__ import annotations

from typing import Literal

import torch

from fgrl import Advantages, Aggregation, PolicyGradient, ops, register


@register("told_distance")
class ToldDistance(PolicyGradient):
    """The KL over the whole vocabulary between the policy and the policy that is told the answer, on the policy's own responses."""

    columns_read = frozenset({"told"})

    of: Literal["student", "teacher"] = "student"
    """Direction of the KL. `student`: KL(policy || policy that is told), `teacher`: the other way round."""
    start: bool = False
    """True if the policy before training is told the answer and gives the target distribution; it needs an adapter."""
    aggregate: Aggregation = "token_mean"
    """Aggregation of the loss: the average over all tokens of a step."""

    def advantages(self, rollout, rewards):
        return Advantages(torch.where(rollout.drawn, rewards.token, 0.0))

    def loss(self, model, batch):
        distance = self.distance(model, batch, batch.columns["told"], of=self.of, adapter=not self.start)
        return self.total(distance, batch), {"told_distance": ops.mean_metric(distance.detach(), batch.drawn)}
