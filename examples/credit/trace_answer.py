"""TRACE (arXiv 2607.13988), as other texts describe it: the value of a turn is what it adds to the probability of the
right answer.

v_k is the mean log-probability, in nats per token, of the prompt's reference behind the state after turn k, under a frozen model; v_0 is that
behind the prompt. The reward of turn k is v_k - v_k-1, on its last token; the last turn has the outcome, too. Trained with `ppo` without a
critic. The paper could not be read: its text and its numbers may differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import Field, PrivateAttr

from fgrl import DataError, Mean, ModelSpec, RewardWrapper, Unkeyed, logp_of, ops, register


@register("trace")
class Trace(RewardWrapper):
    """Another reward, plus the change of the reference's log-probability by each turn, on the turn's last token."""

    model: ModelSpec
    """Frozen model that computes the probability of the reference, with the policy's tokenizer."""
    conclusion: str = "\nThe answer is"
    """Text between a state and the reference."""
    weight: float = Field(1.0, ge=0)
    """Weight of the rewards of turns, per nat."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(16, ge=1)
    """Number of states in one pass of the model."""

    _frozen: Any = PrivateAttr(None)

    def setup(self, run):
        super().setup(run)
        self._frozen = run.model(self.model)

    def on_tokens(self):
        return True

    def score(self, rollout):
        rewards, ends = self.reward.scored(rollout), ops.segment_ends(rollout.turn_ids)
        value, first = self.values(rollout)
        found = torch.zeros_like(rewards.token)
        for row in range(len(ends)):
            places = ends[row].nonzero().flatten()
            of_turns = value[first[row] : first[row + 1]].to(found)
            found[row, places] = self.weight * of_turns.diff()
        last = ops.segment_ends(torch.where(rollout.drawn, 0, -1))
        return replace(
            rewards, token=found + torch.where(last, rewards.response[:, None], 0.0), credit_mask=ends, segment_ids=None,
            metrics={**rewards.metrics, "step_reward": Mean(found.sum(), ends.sum())},
        )  # fmt: skip

    def values(self, rollout):
        """Return v of all states, [N], and the number of the first state of each row, [B + 1]."""
        places, references, first = [], [], [0]
        starts, lengths = ops.turn_starts(rollout.turn_ids), rollout.mask.sum(dim=1).tolist()
        for row, sample in enumerate(rollout.samples):
            if not sample.reference:
                raise DataError(f"prompt {sample.id} has no reference, whose probability is to be measured")
            reference = sample.reference if isinstance(sample.reference, str) else sample.reference[0]
            # a state ends where the next turn begins; that of the prompt where the first does
            ends = [*starts[row].nonzero().flatten().tolist(), lengths[row]]
            places += [(row, end) for end in ends]
            references += [f" {reference}"] * len(ends)
            first.append(len(places))
        size = self.micro_batch_size
        return logp_of(rollout, self._frozen, places, references, after=self.conclusion, micro_batch_size=size), first
