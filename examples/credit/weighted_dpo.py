"""Token-weighted DPO: DPO whose log-ratios are weighted sums over tokens, with weights that come with the pairs.

    -log sigmoid(beta (w - l)),   w = sum_t weight_t log(p(y_t) / p_reference(y_t)) over the chosen response, l over the rejected one

With all weights 1 it is DPO. The reference is the model that training starts from, read in each step.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fgrl import ReferencedAlgorithm, ops, per_token, register


@register("weighted_dpo")
class WeightedDPO(ReferencedAlgorithm):
    """DPO with a weight per token: `meta.weight` of a pair is {chosen: [...], rejected: [...]}, one number per
    token.
    """

    data = "pairs"
    columns: ClassVar = {"weight": per_token(fill=1.0)}

    beta: float = Field(0.1, gt=0)
    """Strength of the constraint to stay near the reference."""

    def reads(self):
        return frozenset({"weight"})

    def token_credit(self, model, batch):
        """Return implicit rewards; `fgrl inspect` and the report draw them below the weights."""
        return {"implicit_reward": self.beta * batch.columns["weight"] * self.log_ratio(model, batch)}

    def loss(self, model, batch):
        """Return the loss, the mean over all pairs of the optimizer step. Rows 2i are chosen, 2i+1 rejected."""
        weighted = ops.masked_sum(batch.columns["weight"] * self.log_ratio(model, batch), batch.mask, dim=1)
        chosen, rejected = weighted[0::2], weighted[1::2]
        losses = ops.preference_loss(chosen, rejected, "dpo", self.beta)
        metrics = {
            "loss": float(losses.detach().mean()),
            "accuracy": float((chosen > rejected).float().mean()),
            "margin": float(self.beta * (chosen - rejected).detach().mean()),
        }
        return losses.sum() / (batch.total_rows / 2) * batch.scale, metrics
