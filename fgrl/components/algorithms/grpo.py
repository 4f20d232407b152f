"""Group relative policy optimization (Shao et al. 2024, DeepSeekMath, section 4.1): no critic, the group is the baseline.

Left out: ratios of whole sequences, group rewards that are centred but not scaled, and clipping of large negative
advantages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from fgrl import lazy, ops
from fgrl.kinds import Numbers, OnlineAlgorithm
from fgrl.registry import register
from fgrl.types import Advantages, Aggregation, Batch, Mean, Most, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


@register("grpo")
class GRPO(OnlineAlgorithm):
    """Clipped policy gradient whose advantage is the response's reward, standardised over the responses to its prompt."""

    least_per_prompt = 2

    clip: float = Field(0.2, gt=0)
    """The probability ratio is clipped to 1 +- clip."""
    clip_high: float | None = Field(None, gt=0)
    """Upper clip when it differs from `clip`."""
    kl_coef: float = Field(0.0, ge=0)
    """Coefficient of the KL to the reference, per nat; 0 needs no reference."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of KL(policy || reference) per token."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Add the KL to the loss, or subtract from each token's advantage the KL from there to the end of the response."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of an entropy bonus (a bonus: it is subtracted from the loss)."""
    aggregate: Aggregation = "seq_mean"
    """Average the loss over tokens and then over responses (as the paper does), or over all tokens."""
    skip_zero_variance: bool = False
    """Leave out the groups that teach nothing because every advantage in them is 0, before any KL. An iteration that has
    only such groups is trained on as it is."""

    @model_validator(mode="after")
    def _check_kl(self) -> GRPO:
        if self.kl == "k1" and self.kl_in == "loss" and self.kl_coef:
            raise ValueError("the gradient of k1 is zero on average; with kl_in: loss use kl: k2 or k3")
        return self

    def needs(self) -> frozenset[str]:
        return frozenset({"old_logp", "ref_logp"} if self.kl_coef else {"old_logp"})

    def spares_old_logp(self) -> bool:
        """Not with the KL in the reward, which is subtracted before the step; nor where groups are left out of the step,
        whose entropy and KL it could not tell."""
        return not (self.kl_coef and self.kl_in == "reward") and not self.skip_zero_variance

    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages:
        """[B,T]. Responses whose reward is missing (NaN) take no part and get 0; the caller drops them."""
        mask = rollout.mask
        # 1. r_i standardised over the responses to the same prompt, on every token of response i
        group = ops.group_advantage(rewards.response, rollout.group)
        advantage = torch.where(mask, group[:, None], 0.0)
        # 2. what a variant makes of it, token by token
        advantage, metrics = self.combine(advantage, rollout, rewards)
        # 3. groups in which nothing is better than anything else
        teaches = ((advantage != 0) & mask).any(dim=1)
        index = ops.group_index(rollout.group)
        live = (
            torch.zeros(len(mask), dtype=torch.long, device=mask.device).index_add(0, index, teaches.long())[index] > 0
        )
        keep = live if self.skip_zero_variance and bool(live.any()) else None
        metrics["idle"] = float((~live).float().mean())
        # 4. the KL to the reference
        if rollout.ref_logp is not None and rollout.old_logp is not None:
            log_ratio = torch.where(mask, rollout.old_logp - rollout.ref_logp, 0.0)
            metrics["kl"] = float(log_ratio.sum(dim=1).mean())
        if self.kl_coef and self.kl_in == "reward":
            penalty = ops.kl(rollout.filled("old_logp"), rollout.filled("ref_logp"), self.kl, mask)
            to_come = penalty.flip(1).cumsum(dim=1).flip(1)
            advantage = torch.where(mask, advantage - self.kl_coef * to_come, 0.0)
        return Advantages(advantage=advantage, keep=keep, metrics=metrics)

    def combine(self, advantage: Tensor, rollout: Rollout, rewards: Rewards) -> tuple[Tensor, Numbers]:
        """The advantage [B,T] that is trained with, of the group's; and metrics of it.

        A variant that reads `rollout.old_logp` says so in `spares_old_logp`.
        """
        return advantage, {}

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Clipped surrogate, aggregated over the whole optimizer step."""
        column, mask = batch.columns, batch.mask
        scores = model.actor.score(batch, temperature=batch.temperature, entropy=self.entropy_coef > 0)
        sampling = scores.logp.detach()  # the policy that sampled is this one where an iteration is one step
        old_logp = column.get("old_logp", sampling)
        policy, clipped = ops.clip_loss(scores.logp, old_logp, column["advantage"], mask, self.clip, self.clip_high)

        def total(per_token: Tensor) -> Tensor:
            return ops.aggregate(
                per_token, mask, self.aggregate,
                total_tokens=batch.total_tokens, total_rows=batch.total_rows, scale=batch.scale,
            )  # fmt: skip

        def mean(per_token: Tensor) -> Mean:
            return Mean(ops.masked_sum(per_token.detach(), mask), mask.sum())

        loss = total(policy)
        metrics: Numbers = {"policy_loss": mean(policy), "clip_fraction": mean(clipped.float())}
        if self.kl_coef and self.kl_in == "loss":
            kl = ops.kl(scores.logp, column["ref_logp"], self.kl, mask)
            loss = loss + self.kl_coef * total(kl)
            metrics["kl_loss"] = mean(kl)
        if self.entropy_coef:
            loss = loss - self.entropy_coef * total(scores.entropy)
        with torch.no_grad():
            log_ratio = torch.where(mask, scores.logp - old_logp, 0.0)
            metrics["approx_kl"] = mean(log_ratio.square() / 2)
            metrics["max_log_ratio"] = Most(log_ratio.abs().max())
            if "old_logp" not in column:
                metrics["entropy"] = mean(-sampling)
                if "ref_logp" in column:
                    metrics["kl"] = Mean(ops.masked_sum(sampling - column["ref_logp"], mask), len(mask))
        return loss, metrics
