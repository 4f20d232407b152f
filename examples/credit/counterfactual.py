"""Counterfactual importance (arXiv 2602.09331): the weight of a passage is the loss in probability of the right answer
without it.

1. cut the response into passages,
2. replace the tokens of one passage by a placeholder,
3. measure the drop of the answer's log-probability,
4. weigh the tokens of a passage by its drop.

docs/credit/counterfactual.md lists the differences from the paper.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from answer_probe import probe
from pydantic import Field

from fgrl import RewardWrapper, Segmenter, build, register, select


@register("counterfactual_importance")
class CounterfactualImportance(RewardWrapper):
    """Another reward plus the columns "drop" and "weight" of each token, for `weighted_grpo`."""

    own_needs = frozenset({"policy"})
    own_fills = frozenset({"drop", "weight"})

    segmenter: Segmenter = Field(default_factory=lambda: build(Segmenter, "sentence"))
    """Segmenter that cuts the response into passages."""
    conclusion: str = "\nThe answer is"
    """Text between the response and the reference."""
    placeholder: str = Field(" ...", min_length=1)
    """Text whose first token replaces each masked token."""
    boost: float = Field(1.0, ge=0)
    """Strength of the weights: the passage with the largest drop has the weight 1 + boost, a passage without a drop 1,
    before the weights are scaled to a mean of 1.
    """
    least_drop: float = Field(0.01, ge=0)
    """Minimum drop in nats: a response whose largest drop is smaller has weights of 1, because such a drop may be
    rounding.
    """

    def needs(self):
        return super().needs() | self.segmenter.rollout_needs()

    def score(self, rollout):
        rewards, mask = self.reward.scored(rollout), rollout.drawn.cpu()
        # 1. passages
        passage = self.segmenter.segment_ids_of(rollout).cpu()
        cases = [(row, number) for row in range(len(mask)) for number in range(int(passage[row].max()) + 1)]
        # 2. each of them replaced by placeholders
        whole = probe(rollout, self.conclusion)
        rows = torch.tensor([row for row, _number in cases], dtype=torch.long)
        masked = select(whole.tokens, rows)
        wide = torch.nn.functional.pad(passage, (0, max(0, masked.mask.shape[1] - passage.shape[1])), value=-1)
        inside = wide[:, : masked.mask.shape[1]][rows] == torch.tensor([number for _row, number in cases])[:, None]
        placeholder = rollout.policy.tokenizer(self.placeholder, add_special_tokens=False).input_ids[0]
        masked.response_ids = torch.where(inside & whole.response[rows], placeholder, masked.response_ids)
        # 3. the drop of the answer's log-probability, nats per token of the answer
        before = whole.mean_logp(rollout.policy)
        after = whole.mean_logp(rollout.policy, masked, rows)
        drop = torch.zeros(mask.shape)
        for (row, number), fall in zip(cases, (before[rows] - after).tolist(), strict=True):
            drop[row] += torch.where(passage[row] == number, fall, 0.0)
        # 4. weights with a mean of 1 over each response
        most = drop.clamp(min=0).amax(dim=1, keepdim=True)
        importance = torch.where(most < self.least_drop, 0.0, drop.clamp(min=0) / most.clamp(min=1e-6))
        weight = torch.where(mask, 1.0 + self.boost * importance, 0.0)
        weight = weight * mask.sum(dim=1, keepdim=True) / weight.sum(dim=1, keepdim=True)
        columns = {"drop": drop.to(rollout.mask.device), "weight": weight.to(rollout.mask.device)}
        return replace(rewards, columns={**rewards.columns, **columns})
