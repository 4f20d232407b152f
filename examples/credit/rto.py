"""Reinforced token optimization, RTO (arXiv 2404.18922, section 4.2): a model that DPO trained gives each token a reward.

    r_t = beta log(dpo(y_t) / ref(y_t)) - kl_coef log(policy(y_t) / ref(y_t))    of each token (beta_1 and beta_2 in the paper)
          + outcome_weight r(x, y)                                               on the last token (beta_3)

The first and the third term are this reward; the second is the KL penalty of `ppo`, with which the policy is trained. r
is a reward of whole responses; in the paper it is a model that learned from the same pairs. docs/credit/rto.md lists
what differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import Field, PrivateAttr

from fgrl import Mean, ModelSpec, RewardWrapper, Unkeyed, ops, register, score_with


@register("rto")
class ReinforcedToken(RewardWrapper):
    """Another reward on the last token, plus the log-ratio of a DPO model to the reference on each token, the column
    "dpo_reward".
    """

    own_needs = frozenset({"ref_logp"})
    own_fills = frozenset({"dpo_reward"})

    model: ModelSpec
    """Model that DPO trained, starting from the policy's start, which is the reference."""
    beta: float = Field(0.05, gt=0)
    """Scale of the log-ratio, per nat."""
    clip: float | None = Field(None, gt=0)
    """Limit of a token's log-ratio reward (0.05 in the authors' code); null: no limit, as in the paper."""
    outcome_weight: float = Field(1.0, ge=0)
    """Weight of the other reward."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(16, ge=1)
    """Number of responses in one pass of the DPO model."""

    _dpo: Any = PrivateAttr(None)

    def setup(self, run):
        super().setup(run)
        self._dpo = run.model(self.model)

    def on_tokens(self):
        return True

    def score(self, rollout):
        rewards, mask = self.reward.scored(rollout), rollout.drawn
        dpo_logp = score_with(rollout, self._dpo, micro_batch_size=self.micro_batch_size).logp
        dense = torch.where(mask, self.beta * (dpo_logp - rollout.filled("ref_logp")), 0.0)
        if self.clip is not None:
            dense = dense.clamp(-self.clip, self.clip)
        last = ops.segment_ends(torch.where(mask, 0, -1))
        token = dense + torch.where(last, self.outcome_weight * rewards.response[:, None], 0.0)
        metrics = {**rewards.metrics, "dpo_reward": Mean(dense.sum(), mask.sum())}
        columns = {**rewards.columns, "dpo_reward": dense}
        return replace(rewards, token=token, credit_mask=mask, segment_ids=None, columns=columns, metrics=metrics)
