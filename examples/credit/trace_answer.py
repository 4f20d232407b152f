"""TRACE (arXiv 2607.13988), as it is described elsewhere: a turn is worth what it adds to the probability of the right answer.

v_k is the mean log-probability, in nats per token, of the prompt's reference behind the state after turn k, under a frozen model; v_0 is that
behind the prompt. The reward of turn k is v_k - v_k-1, on its last token; the last turn has the outcome, too. Trained with `ppo` without a
critic. The paper could not be read: its text and its numbers may differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import Field, PrivateAttr

from fgrl import DataError, Mean, ModelSpec, RewardWrapper, Unkeyed, ops, register, score_with


@register("trace")
class Trace(RewardWrapper):
    """Another reward, and on the last token of each turn what the turn adds to the log-probability of the reference."""

    own_needs = frozenset({"policy"})

    model: ModelSpec
    """The frozen model that says how probable the reference is, with the policy's tokenizer."""
    conclusion: str = "\nThe answer is"
    """Stands between a state and the reference."""
    weight: float = Field(1.0, ge=0)
    """Weight of the rewards of turns, per nat."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(16, ge=1)
    """States in one pass of the model."""

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
        policy, rows, texts, sizes, first = rollout.policy, [], [], [], [0]
        for row, sample in enumerate(rollout.samples):
            if not sample.reference:
                raise DataError(f"prompt {sample.id} has no reference, whose probability is to be measured")
            reference = sample.reference if isinstance(sample.reference, str) else sample.reference[0]
            between, answer = (
                policy.tokenizer(text, add_special_tokens=False).input_ids
                for text in (self.conclusion, f" {reference}")
            )
            said = rollout.response_ids[row][rollout.mask[row]].tolist()
            begins = ops.turn_starts(rollout.turn_ids)[row].nonzero().flatten().tolist()
            for end in [
                *begins,
                len(said),
            ]:  # a state ends where the next turn begins; that of the prompt where the first does
                rows.append(row)
                texts.append(said[:end] + between + answer)
                sizes.append(len(answer))
            first.append(len(rows))
        probes = policy.responses_to(rows, texts)
        logp = score_with(probes, self._frozen, temperature=1.0, micro_batch_size=self.micro_batch_size).logp
        length, size = probes.mask.sum(dim=1), torch.tensor(sizes, device=logp.device)
        place = torch.arange(logp.shape[1], device=logp.device)
        answer = probes.mask & (place >= (length - size)[:, None])
        return torch.where(answer, logp, 0.0).sum(dim=1) / size, first
