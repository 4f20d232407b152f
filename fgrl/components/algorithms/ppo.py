"""Proximal policy optimization on token rewards (Schulman et al. 2017; segment paper, Eq. 5 and Appendix D).

Left out: a value head on the policy's own trunk (actor and critic are separate networks, as in the paper's setup), and
per-token discounting between segments (gamma is per token).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from fgrl import lazy, ops
from fgrl.kinds import Numbers, OnlineAlgorithm
from fgrl.registry import Settings, register
from fgrl.types import Advantages, Aggregation, Batch, Mean, Most, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


class AdaptiveKL(Settings):
    """Proportional controller of the KL coefficient (Ziegler et al. 2019, section 2.2)."""

    target: float = Field(gt=0)
    """KL per response, in nats, to steer to."""
    horizon: float = Field(10_000, gt=0)
    """Responses over which the coefficient may change by a fifth of itself at the most."""


@register("ppo")
class PPO(OnlineAlgorithm):
    """Clipped policy gradient with a learned value function, generalized advantages and a KL penalty."""

    critic = True

    clip: float = Field(0.2, gt=0)
    """The probability ratio is clipped to 1 +- clip."""
    clip_high: float | None = Field(None, gt=0)
    """Upper clip when it differs from `clip`."""
    value_clip: float | None = Field(0.2, gt=0)
    """The new value is clipped to the old value +- value_clip; null switches value clipping off."""
    value_coef: float = Field(1.0, ge=0)
    """Weight of the value loss. Actor and critic share no weights, so it only scales the critic's gradient."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount per token."""
    lam: float = Field(0.95, ge=0, le=1)
    """Lambda of generalized advantage estimation."""
    whiten: bool = True
    """Standardise advantages over all real tokens of the rollout."""
    kl: Literal["k1", "k2", "k3", "full"] = "k1"
    """Estimator of KL(policy || reference) per token; `full` sums over the vocabulary."""
    kl_in: Literal["reward", "loss"] = "reward"
    """Subtract the KL from each token's reward, or add it to the loss."""
    kl_coef: float = Field(0.01, ge=0)
    """Coefficient of the KL (the papers' beta), in reward units per nat."""
    adaptive_kl: AdaptiveKL | None = None
    """Let the coefficient follow a KL target, starting from `kl_coef`."""
    missing_eos_penalty: float = Field(0.0, ge=0)
    """Subtracted from the last token's reward of a response that did not end by itself."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of an entropy bonus (a bonus: it is subtracted from the loss)."""
    aggregate: Aggregation = "token_mean"
    """Average the loss over all tokens, or over tokens and then over responses."""

    _coefficient: float = PrivateAttr(0.0)

    @model_validator(mode="after")
    def _check(self) -> PPO:
        if self.kl == "full" and self.kl_in == "loss":
            raise ValueError("kl: full is computed while sampling and has no gradient; use it with kl_in: reward")
        if self.kl == "k1" and self.kl_in == "loss":
            raise ValueError("the gradient of k1 is zero on average; with kl_in: loss use kl: k2 or k3")
        self._coefficient = self.kl_coef
        return self

    def needs(self) -> frozenset[str]:
        wanted = {"old_logp", "values", "ref_logp"}
        return frozenset(wanted | {"ref_kl"} if self.kl == "full" else wanted)

    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages:
        """Token rewards minus KL, then generalized advantages (Schulman et al. 2016). All tensors [B,T].

        Responses whose reward is missing (NaN) carry neither advantage nor KL metrics; the caller drops them.
        """
        mask, values = rollout.mask, rollout.filled("values")
        old_logp, ref_logp = rollout.filled("old_logp"), rollout.filled("ref_logp")
        log_ratio = torch.where(mask, old_logp - ref_logp, 0.0)
        # 1. the penalty that the reward carries
        if self.kl == "full":
            penalty = torch.where(mask, rollout.filled("ref_kl"), 0.0)
        else:
            penalty = ops.kl(old_logp, ref_logp, self.kl, mask)
        token = torch.where(mask, rewards.token, 0.0)
        if self.kl_in == "reward":
            token = token - self._coefficient * penalty
        # 2. responses that were cut off
        unfinished = ~rollout.eos.any(dim=1)
        if self.missing_eos_penalty:
            last = ops.segment_ends(torch.where(mask, 0, -1))
            token = token - self.missing_eos_penalty * (last & unfinished[:, None])
        # 3. advantages and value targets
        advantage, returns = ops.gae(token, values, mask, self.gamma, self.lam)
        explained = ops.explained_variance(values, returns, mask)
        if self.whiten:
            advantage = ops.masked_whiten(advantage, mask)
        # 4. the controller sees this rollout's KL and sets the coefficient of the next
        response_kl = float((penalty if self.kl == "full" else log_ratio).sum(dim=1).mean())
        metrics = {
            "kl": response_kl,
            "kl_coef": self._coefficient,
            "token_reward": float(ops.masked_mean(rewards.token, mask)),
            "returns": float(ops.masked_mean(returns, mask)),
            "explained_variance": float(explained),
        }
        if self.adaptive_kl is not None:
            error = max(-0.2, min(0.2, response_kl / self.adaptive_kl.target - 1.0))
            self._coefficient *= 1.0 + error * len(mask) / self.adaptive_kl.horizon
        return Advantages(advantage=advantage, returns=returns, metrics=metrics)

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Clipped surrogate plus clipped value loss, aggregated over the whole optimizer step."""
        column, mask = batch.columns, batch.mask
        scores = model.actor.score(batch, temperature=batch.temperature, entropy=self.entropy_coef > 0)
        values = model.critic.values(batch)
        high = self.clip if self.clip_high is None else self.clip_high
        policy, clipped = ops.clip_loss(scores.logp, column["old_logp"], column["advantage"], mask, self.clip, high)
        value, value_clipped = ops.value_loss(values, column["values"], column["returns"], mask, self.value_clip)

        def total(per_token: Tensor) -> Tensor:
            return ops.aggregate(
                per_token, mask, self.aggregate,
                total_tokens=batch.total_tokens, total_rows=batch.total_rows, scale=batch.scale,
            )  # fmt: skip

        loss = total(policy) + self.value_coef * total(value)
        if self.kl_in == "loss" and self.kl != "full":
            loss = loss + self._coefficient * total(ops.kl(scores.logp, column["ref_logp"], self.kl, mask))
        if self.entropy_coef:
            loss = loss - self.entropy_coef * total(scores.entropy)

        def mean(per_token: Tensor) -> Mean:
            return Mean(ops.masked_sum(per_token, mask), mask.sum())

        with torch.no_grad():
            log_ratio = torch.where(mask, scores.logp - column["old_logp"], 0.0)
            metrics = {
                "policy_loss": mean(policy),
                "value_loss": mean(value),
                "clip_fraction": mean(clipped.float()),
                "value_clip_fraction": mean(value_clipped.float()),
                "approx_kl": mean(log_ratio.square() / 2),
                "max_log_ratio": Most(log_ratio.abs().max()),
            }
        return loss, metrics

    def state_dict(self) -> dict[str, Any]:
        return {"coefficient": self._coefficient}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._coefficient = state["coefficient"]
