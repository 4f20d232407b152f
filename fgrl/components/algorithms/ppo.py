"""Proximal policy optimization on token rewards (Schulman et al. 2017; segment paper, Eq. 5 and Appendix D).

Not supported: a value head on the policy's own trunk (actor and critic are separate networks, as in the paper's setup),
and per-token discounting between segments (gamma is per token).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers
from fgrl.registry import Settings, register
from fgrl.training.policy_gradient import PolicyGradient
from fgrl.types import Advantages, Aggregation, Batch, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


class AdaptiveKL(Settings):
    """Proportional controller of the KL coefficient (Ziegler et al. 2019, section 2.2)."""

    target: float = Field(gt=0, le=1e6)
    """Target value of the KL per response, in nats."""
    horizon: float = Field(10_000, gt=0, le=1e12)
    """Number of responses over which the coefficient changes by at most 20%."""


@register("ppo")
class PPO(PolicyGradient):
    """Clipped policy gradient with a learned value function, generalized advantages and a KL penalty."""

    critic = True

    values: Literal["learned", "none"] = "learned"
    """`learned`: subtract values of a learned critic from the returns. `none`: train no critic; an advantage is then
    the sum of the rewards from its token on, discounted by gamma x lam per token.
    """
    value_clip: float | None = Field(0.2, gt=0, le=1e6)
    """Maximum change of a value: new values are clipped to the old value +- value_clip. null disables value clipping.
    """
    value_coef: float = Field(1.0, ge=0, le=100)
    """Weight of the value loss. Actor and critic share no weights, so it only scales the critic's gradient."""
    halve_value_loss: bool = True
    """If true, the value loss is half of the squared error, as in most libraries. If false, it is the squared error
    itself, as in RLA's Eq. 10 and in Text2Grad's Algorithm 4.
    """
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount factor per token."""
    lam: float = Field(0.95, ge=0, le=1)
    """Lambda of generalized advantage estimation."""
    gae_over: Literal["token", "turn"] = "token"
    """Unit of an action for advantages, values, `gamma` and `lam`: a token, or a turn of a conversation. All tokens of
    a turn have one advantage, and values are learned only at the first token of each turn.
    """
    whiten: bool = True
    """Standardize advantages over all tokens of the rollout that the policy drew."""
    kl: Literal["k1", "k2", "k3", "full"] = "k1"
    """Estimator of KL(policy || reference) per token; `full` sums over the vocabulary."""
    kl_in: Literal["loss", "reward"] = "reward"
    """Place of the KL: subtracted from the rewards, or added to the loss."""
    kl_at: Literal["token", "end"] = "token"
    """Token from whose reward the KL is subtracted, with `kl_in: reward`. `token`: each token's KL from its own reward.
    `end`: the KL of the whole response from the reward of its last token (RLA, Eq. 5). With lam below 1 the two give
    different advantages.
    """
    kl_coef: float = Field(0.01, ge=0, le=100)
    """Coefficient of the KL (beta in the papers), in reward units per nat."""
    adaptive_kl: AdaptiveKL | None = None
    """Adaptation of the coefficient to a target KL, starting from `kl_coef`; null keeps the coefficient constant."""
    missing_eos_penalty: float = Field(0.0, ge=0, le=1e6)
    """Penalty subtracted from the reward of the last token of a response without an end-of-sequence token."""
    aggregate: Aggregation = "token_mean"
    """Average of the loss: over all tokens (`token_mean`), over tokens and then over responses (`seq_mean`), or its sum
    divided by the planned number of responses of a step, which does not depend on the drawn responses (`sum`).
    """
    skip_text: list[str] = []
    """Texts of tokens to exclude, compared without surrounding white space, such as `[",", ".", "?", "!"]`. Excluded
    tokens take no part in any term (advantages, KL, losses, whitening, entropy bonus), and their rewards are lost.
    """
    at_skipped: ops.Gap = "pass"
    """Treatment of excluded tokens in advantages. `pass`: credit passes them as if they did not exist. `stop`: rewards
    after an excluded token do not count for tokens before it.
    """

    _coefficient: float = PrivateAttr(0.0)
    _next_coefficient: float = PrivateAttr(0.0)

    @model_validator(mode="after")
    def _check(self) -> PPO:
        if self.kl == "full" and self.kl_in == "loss":
            raise ValueError("kl: full is computed while sampling and has no gradient; use it with kl_in: reward")
        if self.kl_at == "end" and self.kl_in == "loss":
            raise ValueError("kl_at: end is a place in the rewards; use it with kl_in: reward")
        for text in self.skip_text:
            if not text or text != text.strip():
                raise ValueError(
                    f"skip_text: tokens are compared without white space around them, so {text!r} fits none"
                )
        self._coefficient = self._next_coefficient = self.kl_coef
        return self

    def uses_critic(self) -> bool:
        return self.values == "learned"

    def needs(self) -> frozenset[str]:
        fields = {"old_logp": True, "ref_logp": True, "values": self.uses_critic(), "ref_kl": self.kl == "full",
                  "offsets": bool(self.skip_text)}  # fmt: skip
        return frozenset(name for name, needed in fields.items() if needed)

    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages:
        """Compute token rewards minus KL and their generalized advantages (Schulman et al. 2016). All tensors [B,T].

        Responses with a missing reward (NaN) have neither advantages nor KL metrics; the caller drops them.
        """
        self._coefficient = self._next_coefficient
        mask = rollout.drawn & ~self.skipped(rollout) if self.skip_text else rollout.drawn
        values = rollout.filled("values") if self.uses_critic() else torch.zeros(mask.shape, device=mask.device)
        old_logp, ref_logp = rollout.filled("old_logp"), rollout.filled("ref_logp")
        log_ratio = torch.where(mask, old_logp - ref_logp, 0.0)
        # 1. the KL penalty of the reward
        if self.kl == "full":
            penalty = torch.where(mask, rollout.filled("ref_kl"), 0.0)
        else:
            penalty = ops.kl(old_logp, ref_logp, self.kl, mask)
        token = torch.where(mask, rewards.token, 0.0)
        last = ops.segment_ends(torch.where(mask, 0, -1))
        if self.kl_in == "reward":
            placed = last * penalty.sum(dim=1, keepdim=True) if self.kl_at == "end" else penalty
            token = token - self._coefficient * placed
        # 2. responses that were cut off
        unfinished = ~rollout.eos.any(dim=1)
        if self.missing_eos_penalty:
            token = token - self.missing_eos_penalty * (last & unfinished[:, None])
        # 3. advantages and value targets
        acts, turn = mask, torch.where(mask, rollout.turn_ids, -1)
        if self.gae_over == "turn":
            acts = ops.turn_starts(turn)
            token = torch.where(acts, ops.spread(ops.to_segments(token, turn, "sum")[0], turn, "repeat"), 0.0)
        advantage, returns = ops.gae(
            token, values, acts, self.gamma, self.lam, self.at_skipped if acts is mask else "pass",
            drawn=rollout.drawn, end_value=rollout.end_value,
        )  # fmt: skip
        if self.gae_over == "turn":
            advantage = ops.spread(ops.to_segments(advantage, turn, "sum")[0], turn, "repeat")
        if self.whiten:
            advantage = ops.masked_whiten(advantage, mask)
        # 4. the controller reads this rollout's KL and sets the coefficient of the next
        response_kl = float((penalty if self.kl == "full" else log_ratio).sum(dim=1).mean())
        metrics: Numbers = {
            "kl": response_kl,
            "kl_coef": self._coefficient,
            "token_reward": float(ops.masked_mean(rewards.token, mask)),
            "penalized_reward": float(token.sum(dim=1).mean()),
            "returns": float(ops.masked_mean(returns, acts)),
        }
        if self.uses_critic():
            metrics["explained_variance"] = float(ops.explained_variance(values, returns, acts))
        metrics |= self.early_credit(rewards.token, mask)
        if self.adaptive_kl is not None:
            error = max(-0.2, min(0.2, response_kl / self.adaptive_kl.target - 1.0))
            self._next_coefficient = self._coefficient * (1.0 + error * len(mask) / self.adaptive_kl.horizon)
        columns = {} if acts is mask else {"acts": acts}
        if not self.skip_text:
            return Advantages(advantage=advantage, returns=returns, columns=columns, metrics=metrics)
        metrics["skipped"] = 1.0 - float(mask.sum() / rollout.drawn.sum())
        return Advantages(
            advantage=advantage, returns=returns, trained=mask, keep=mask.any(dim=1), columns=columns, metrics=metrics
        )

    def skipped(self, rollout: Rollout) -> Tensor:
        """Return a mask of the tokens whose text is in `skip_text`, bool [B,T]."""
        skipped = torch.zeros_like(rollout.mask)
        for row, (text, offsets) in enumerate(zip(rollout.texts, rollout.filled("offsets"), strict=True)):
            for place, (start, end) in enumerate(offsets):
                skipped[row, place] = text[start:end].strip() in self.skip_text
        return skipped

    def early_credit(self, token: Tensor, mask: Tensor) -> Numbers:
        """Return the metric `early_credit`: `ops.amplification` of the token rewards [B,T] (before any KL), averaged
        over the responses that have one. A value of 1 means that all reward is on last tokens. A larger value states
        how many times more credit the earlier tokens get than from the same sum on the last token. The metric is
        omitted if no credit flows back (gamma x lam is 0), if no response has a reward, or if it exceeds the range of a
        float.
        """
        decay = self.gamma * self.lam
        if not decay:
            return {}
        ratio = ops.amplification(token, mask, decay)
        mean = float(ratio[~ratio.isnan()].mean())
        return {"early_credit": mean} if math.isfinite(mean) else {}

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return the clipped surrogate plus the clipped value loss, aggregated over the whole optimizer step."""
        column, mask = batch.columns, self.trained(batch)
        scores = self.score(model, batch)
        policy, metrics = self.policy_loss(batch, logp=scores.logp, old_logp=column["old_logp"], entropy=scores.entropy)
        if not self.uses_critic():
            return policy, metrics
        values = model.critic.values(batch)
        mask = mask & column.get("acts", mask)
        value, clipped = ops.value_loss(values, column["values"], column["returns"], mask, self.value_clip)
        if not self.halve_value_loss:
            value = 2 * value
        metrics["value_loss"] = ops.mean_metric(value, mask)
        metrics["value_clip_fraction"] = ops.mean_metric(clipped.float(), mask)
        return policy + self.value_coef * self.total(value, batch), metrics

    def current_kl_coef(self) -> float:
        return self._coefficient

    def state_dict(self) -> dict[str, Any]:
        return {"coefficient": self._next_coefficient}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._coefficient = self._next_coefficient = state["coefficient"]
