"""DAPO (arXiv 2503.14476): GRPO that clips less from above, weighs all tokens alike, and draws other prompts in place of groups that teach nothing.

Three of its four parts are settings of `grpo`, with other defaults here; the recipe sets `rollout.draws_at_most`. The fourth, a penalty of overlong
responses, is a reward. What is drawn again depends on what was drawn: prompts that are nearly always right or wrong count less than they should,
and the gradient is biased (docs/credit-over-turns.md).
"""

from __future__ import annotations

from pydantic import Field

from fgrl import Aggregation, GroupRelative, register


@register("dapo")
class DAPO(GroupRelative):
    """GRPO with the settings of DAPO."""

    aggregate: Aggregation = "token_mean"
    """Each token of a step weighs the same."""
    clip_high: float | None = Field(0.28, gt=0, le=1e6)
    """Upper clip of the probability ratio."""
    skip_zero_variance: bool = True
    """Leave out groups with equal rewards; `rollout.draws_at_most` above 1 draws others in their place."""
