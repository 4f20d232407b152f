"""A reward for the recipes in this folder: whether the response contains the reference."""

from __future__ import annotations

import torch

from fgrl import Reward, Rewards, ops, register


@register("says_answer")
class SaysAnswer(Reward):
    """Reward 1 for a response that contains one of the prompt's references as words, else 0; on the last token."""

    def score(self, rollout):
        worth = []
        for sample, text in zip(rollout.samples, rollout.texts, strict=True):
            references = [sample.reference] if isinstance(sample.reference, str) else sample.reference or []
            words = f" {' '.join(''.join(c if c.isalnum() else ' ' for c in text.lower()).split())} "
            worth.append(float(any(f" {reference.lower()} " in words for reference in references)))
        response = torch.tensor(worth, device=rollout.mask.device)
        last = ops.segment_ends(torch.where(rollout.drawn, 0, -1))
        return Rewards(response, torch.where(last, response[:, None], 0.0), last)
