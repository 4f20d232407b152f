"""DAPO (arXiv 2503.14476): GRPO that clips less from above, weighs all tokens alike, and replaces groups with equal
rewards by other prompts.

Three of its four parts are settings of `grpo`, with other defaults here; the recipe sets `rollout.draws_at_most`. The
fourth, a penalty of overlong responses, is the reward `overlong`. The replacement depends on the responses that were
drawn: prompts that are nearly always right or wrong count less than they should, and the gradient is biased
(docs/credit-over-turns.md).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field, PrivateAttr

from fgrl import Aggregation, DataError, GroupRelative, Mean, RewardWrapper, ops, register


@register("dapo")
class DAPO(GroupRelative):
    """GRPO with the settings of DAPO."""

    aggregate: Aggregation = "token_mean"
    """Each token of a step weighs the same."""
    clip_high: float | None = Field(0.28, gt=0, le=1e6)
    """Upper clip of the probability ratio."""
    skip_zero_variance: bool = True
    """Leave out groups with equal rewards; `rollout.draws_at_most` above 1 draws other groups in their place."""


@register("overlong")
class Overlong(RewardWrapper):
    """Another reward minus a penalty for a response that comes near to the length limit of the sampling; the penalty is
    on its last token.
    """

    cache: int = Field(16, ge=1)
    """Number of tokens before the limit over which the penalty grows from 0 to 1."""

    _limit: int = PrivateAttr(0)

    def setup(self, run):
        super().setup(run)
        if run.sampling is None:
            raise DataError("overlong reads the limit of the stage's sampling, and this stage draws nothing")
        self._limit = run.sampling.max_new_tokens

    def score(self, rollout):
        rewards = self.reward.scored(rollout)
        over = rollout.mask.sum(dim=1) - (self._limit - self.cache)
        penalty = (over / self.cache).clamp(0.0, 1.0).to(rewards.response)
        last = ops.segment_ends(torch.where(rollout.drawn, 0, -1))
        return replace(
            rewards, response=rewards.response - penalty, token=rewards.token - torch.where(last, penalty[:, None], 0.0),
            credit_mask=rewards.credit_mask | last, metrics={**rewards.metrics, "overlong": Mean(penalty.sum(), len(penalty))},
        )  # fmt: skip
