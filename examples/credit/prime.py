"""PRIME (arXiv 2502.01456): process rewards from a model that only learns from outcomes, while the policy is trained.

With outcomes r(y) in [0, 1], and K responses y^1 ... y^K to a prompt:

    r_t   = beta log(prm(y_t) / ref(y_t))                              implicit process reward of a token (Eq. 3)
    A_t^i = sum_{s >= t} gamma^(s-t) [r_s^i - mean_{j != i} rbar^j]    rbar^j: mean of r_t over the tokens of y^j
            + r(y^i) - mean_{j != i} r(y^j)                            leave-one-out of both (Eq. 5)
    L_prm = cross-entropy of r(y) and sigmoid(sum_t r_t)               the model's own loss (Eq. 4)

and the policy gets the clipped loss of PPO. An iteration is credited with the model as it was before the iteration (Algorithm 1).
"""

from __future__ import annotations

import torch
from pydantic import Field

from fgrl import Auxiliary, AuxiliarySettings, DataError, GroupRelative, Mean, ops, register


def others(value, group):
    """Return the mean [B] of `value` [B] over the other responses to the same prompt; for a response without others,
    its own value.
    """
    index = ops.group_index(group)
    count = torch.bincount(index)[index]
    total = torch.zeros_like(value).index_add(0, index, value)[index]
    return torch.where(count > 1, (total - value) / (count - 1).clamp(min=1), value)


@register("prime")
class Prime(GroupRelative):
    """Policy gradient with implicit process rewards; its process reward model `prm` is in the product."""

    beta: float = Field(0.05, gt=0)
    """Scale of process rewards, per nat."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount of process rewards, per token."""
    prm: AuxiliarySettings = AuxiliarySettings()
    """Process reward model; its initial state is also its reference."""

    def auxiliaries(self):
        return {"prm": Auxiliary(self.prm, self.prm_loss, reference=True)}

    def combine(self, advantage, rollout, rewards):
        mask, outcome = rollout.drawn, rewards.response
        if bool(((outcome < 0) | (outcome > 1)).any()):
            low, high = float(outcome.min()), float(outcome.max())
            raise DataError(f"prime: rewards from {low:g} to {high:g} are no labels: give rewards from 0 to 1")
        log_ratio = rollout.columns["prm_logp"] - rollout.columns["prm_ref_logp"]
        process = torch.where(mask, self.beta * log_ratio, 0.0)
        baseline = others(ops.masked_mean(process, mask, dim=1), rollout.group)
        centred = torch.where(mask, process - baseline[:, None], 0.0)
        to_come, _returns = ops.gae(centred, torch.zeros_like(centred), mask, self.gamma, 1.0)
        better = (outcome - others(outcome, rollout.group))[:, None]
        metrics = {"process_reward": Mean(process.sum(), mask.sum())}
        return torch.where(mask, to_come + better, 0.0), metrics

    def prm_loss(self, model, batch):
        """Return the loss, the mean over the responses of the optimizer step."""
        logp = model.score(batch, temperature=batch.temperature).logp
        logit = self.beta * ops.masked_sum(logp - batch.columns["prm_ref_logp"], batch.drawn, dim=1)
        label = batch.columns["response"].float()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logit, label, reduction="none")
        right = (logit > 0) == (label > 0.5)
        metrics = {"loss": losses.detach().mean(), "accuracy": Mean(right.sum(), len(right))}
        return losses.sum() / batch.total_rows * batch.scale, metrics
