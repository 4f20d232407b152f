"""Group relative policy optimization (Shao et al. 2024, DeepSeekMath, section 4.1): no critic, the group is the
baseline.

Not included: ratios of whole sequences, group rewards that are centred but not scaled, and clipping of large negative
advantages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fgrl.base import lazy, ops
from fgrl.kinds import Numbers
from fgrl.training.policy_gradient import PolicyGradient
from fgrl.types import Advantages, Batch, Mean, Rewards, Rollout

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")


class GroupRelative(PolicyGradient):
    """Base class of `grpo` and its variants. The advantage is the response's reward, standardised over the responses to
    its prompt; a variant changes it in `combine`, and excludes tokens in `credited`.
    """

    min_per_prompt = 2
    reads_token_rewards = False

    kl: Literal["k1", "k2", "k3"] = "k3"
    measure_kl: bool = False
    """True to measure the KL to the reference even if `kl_coef` is 0: `kl` and `kl_loss` are in the log, and the
    reference computes log-probabilities.
    """
    measure_entropy: bool = False
    """True to measure the policy's exact entropy, over the whole vocabulary. Otherwise `entropy` in the log is -log p
    of the drawn tokens, which is too low if `top_p` or `top_k` truncates the draws.
    """
    skip_zero_variance: bool = False
    """True to leave out groups without a gradient, because every advantage in them is 0 (before any KL). If this
    applies to all groups of an iteration, all are kept.
    """

    def needs(self) -> frozenset[str]:
        fields = {"old_logp": True, "ref_logp": self.kl_coef or self.measure_kl, "entropy": self.measure_entropy}
        return frozenset(name for name, needed in fields.items() if needed)

    def can_skip_old_logp(self) -> bool:
        """Return True except in three cases: the KL is in the reward, since it is subtracted before the step; groups
        are left out of the step, since their entropy and KL would not be measured; the exact entropy is measured, since
        that happens in the same pass.
        """
        in_reward = self.kl_coef and self.kl_in == "reward"
        return not (in_reward or self.skip_zero_variance or self.measure_entropy)

    def advantages(self, rollout: Rollout, rewards: Rewards) -> Advantages:
        """Return the advantages [B,T]. Responses whose reward is missing (NaN) are ignored and get 0; the caller drops
        them.
        """
        mask = rollout.drawn
        # 1. r_i standardised over the responses to the same prompt, on every token of response i
        group = ops.group_advantage(rewards.response, rollout.group)
        advantage = torch.where(mask, group[:, None], 0.0)
        # 2. changed by a variant, token by token
        advantage, metrics = self.combine(advantage, rollout, rewards)
        chosen = self.credited(rollout, rewards)
        trained = None if chosen is None else mask & chosen
        counted = mask if trained is None else trained
        # 3. groups in which no response is better than another
        teaches = ((advantage != 0) & counted).any(dim=1)
        index = ops.group_index(rollout.group)
        teaching = torch.zeros(len(mask), dtype=torch.long, device=mask.device).index_add(0, index, teaches.long())
        live = teaching[index] > 0
        keep = live if self.skip_zero_variance and bool(live.any()) else None
        if trained is not None:
            any_trained = trained.any(dim=1)
            keep = any_trained if keep is None else keep & any_trained
            metrics["trained"] = Mean(trained.sum(), mask.sum())
        metrics["idle"] = float((~live).float().mean())
        # 4. the KL to the reference
        if rollout.ref_logp is not None and rollout.old_logp is not None:
            log_ratio = torch.where(mask, rollout.old_logp - rollout.ref_logp, 0.0)
            metrics["kl"] = float(log_ratio.sum(dim=1).mean())
        if self.kl_coef and self.kl_in == "reward":
            penalty = ops.kl(rollout.filled("old_logp"), rollout.filled("ref_logp"), self.kl, counted)
            to_come = penalty.flip(1).cumsum(dim=1).flip(1)
            advantage = torch.where(mask, advantage - self.kl_coef * to_come, 0.0)
        return Advantages(advantage=advantage, keep=keep, trained=trained, metrics=metrics)

    def short_of(self, rollout: Rollout, rewards: Rewards, advantages: Advantages, groups: int) -> int:
        """Return the number of missing groups: with `skip_zero_variance`, groups without a gradient count as missing."""
        teaches = (advantages.advantage != 0).any(dim=1)
        return groups - len(torch.unique(rollout.group[teaches])) if self.skip_zero_variance else 0

    def combine(self, advantage: Tensor, rollout: Rollout, rewards: Rewards) -> tuple[Tensor, Numbers]:
        """Return the advantage [B,T] for training, computed from the group's advantage, and metrics about it.

        A variant that reads `rollout.old_logp` must return False from `can_skip_old_logp`.
        """
        return advantage, {}

    def credited(self, rollout: Rollout, rewards: Rewards) -> Tensor | None:
        """Return a mask, bool [B,T], of the tokens in every term of the loss (surrogate, KL, entropy bonus); None =
        all. Responses without such a token are left out.
        """
        return None

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Numbers]:
        """Return the clipped surrogate, aggregated over the whole optimizer step."""
        column, mask = batch.columns, batch.drawn
        scores = self.score(model, batch)
        sampling = scores.logp.detach()  # the policy that sampled is this one where an iteration is one step
        old_logp = column.get("old_logp", sampling)
        loss, metrics = self.policy_loss(batch, logp=scores.logp, old_logp=old_logp, entropy=scores.entropy)
        if self.measure_kl and "kl_loss" not in metrics:
            metrics["kl_loss"] = ops.mean_metric(ops.kl(sampling, column["ref_logp"], self.kl, mask), mask)
        if "old_logp" not in column:
            metrics["entropy"] = ops.mean_metric(-sampling, mask)
            if "ref_logp" in column:
                metrics["kl"] = Mean(ops.masked_sum(sampling - column["ref_logp"], mask), len(mask))
        return loss, metrics
