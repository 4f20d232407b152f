"""Outcome-grounded advantage reshaping by gradients, OAR-G (arXiv 2601.07408): the weight of a token is the influence
of its embedding on the probability of the right answer.

1. influence |gradient . embedding| of each token, from one backward pass,
2. scaled to [0, 1] in its response,
3. low values are damped and high values raised (bi-level gating),
4. the weights of a response have a mean of 1.

See docs/credit/oar_g.md.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from answer_probe import probe
from pydantic import Field

from fgrl import RewardWrapper, register


@register("oar_g")
class OutcomeGradient(RewardWrapper):
    """Another reward plus the columns "influence" and "weight" of each token, for `weighted_grpo`."""

    own_needs = frozenset({"policy"})
    own_fills = frozenset({"influence", "weight"})

    conclusion: str = "\nThe answer is"
    """Text between the response and the reference."""
    quantile: float = Field(0.5, ge=0, le=1)
    """Quantile of the influence in each response: tokens below it are damped, the others raised."""
    boost: float = Field(1.0, ge=0)
    """Strength of the weights: the most influential token has the weight 1 + boost, before the weights are scaled."""
    least: float = Field(0.1, ge=0, le=1)
    """Minimum weight of a damped token, before the weights are scaled."""

    def score(self, rollout):
        rewards, policy, mask = self.reward.scored(rollout), rollout.policy, rollout.drawn.cpu()
        # 1. influence on the mean log-probability of the answer's tokens
        influence = torch.zeros(mask.shape)
        whole = probe(rollout, self.conclusion)
        for rows, part, answer in policy.micro_batches(whole.tokens, whole.answer):
            share = answer / answer.sum(dim=1, keepdim=True)
            embeddings, gradient = policy.input_gradient(
                part, lambda scores, share=share: (scores.logp * share).sum(), only=answer
            )
            of_tokens = (gradient.float() * embeddings.float()).sum(dim=2).abs()[:, part.prompt_mask.shape[1] :].cpu()
            width = min(mask.shape[1], of_tokens.shape[1])
            influence[rows, :width] = torch.where(whole.response[rows, :width], of_tokens[:, :width], 0.0)
        weight = mask.float()
        for row, own in enumerate(mask & ~rollout.eos.cpu()):
            weight[row, own] = self.gated(influence[row, own])
        weight = weight.to(rollout.mask.device)
        return replace(rewards, columns={**rewards.columns, "influence": influence.to(weight.device), "weight": weight})

    def gated(self, influence):
        """Return weights [length] with a mean of 1 from influences [length]."""
        if not len(influence):
            return influence
        scaled = influence.log1p()
        scaled = (scaled - scaled.min()) / (scaled.max() - scaled.min()).clamp(min=1e-12)
        cut = scaled.quantile(self.quantile)
        low = (scaled / (cut + 1e-8)).clamp(min=self.least)
        high = 1.0 + self.boost * (scaled - cut) / (1.0 - cut + 1e-8)
        weight = torch.where(scaled < cut, low, high)
        return weight * len(weight) / weight.sum()
