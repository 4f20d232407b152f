"""Multi-turn GRPO, MT-GRPO (arXiv 2505.11821): a turn before the last has an advantage from its own reward and one from
the outcome.

Of the conversations of a prompt, with z the difference to the mean over the standard deviation,

    A_i,k = z(r_i,k) + outcome_weight z(o_i)    of a turn before the last; z of its reward over the conversations with such a turn k
    A_i,K = z(o_i)                              of the last turn, whose reward o_i is the outcome

The paper has two turns, of which all conversations have both; for more turns this is one reading of it. If the policy
decides the number of turns, the gradient is biased (docs/credit-over-turns.md): the first term lacks the consequences
of a turn, a standard deviation depends on the very choice that it divides, and the conversations with a turn k are a
selection of all.
"""

from __future__ import annotations

import torch
from pydantic import Field

from fgrl import Aggregation, TurnRelative, ops, register


@register("mt_grpo")
class MTGRPO(TurnRelative):
    """GRPO over turns: rewards of turns and outcomes, each standardised over the conversations of a prompt."""

    aggregate: Aggregation = "seq_mean"
    """Aggregation of the loss: the average over the tokens of a conversation, then over conversations, as in GRPO."""
    outcome_weight: float = Field(1.0, ge=0)
    """Weight of the outcome in turns before the last (alpha)."""

    def of_turns(self, earned, reached, rollout, rewards):
        last = reached & (reached.long().cumsum(dim=1) == reached.sum(dim=1, keepdim=True))
        cell = ops.group_index(rollout.group)[:, None] * reached.shape[1] + torch.arange(
            reached.shape[1], device=reached.device
        )
        own = ops.standardize(earned, reached & ~last, cell, unbiased=True)
        outcome = (earned * last).sum(dim=1).masked_fill(~reached.any(dim=1), torch.nan)
        share = torch.where(last, 1.0, self.outcome_weight)
        return torch.where(reached, own + share * ops.group_advantage(outcome, rollout.group)[:, None], 0.0), {}
