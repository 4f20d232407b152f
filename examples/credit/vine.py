"""VinePPO's values (arXiv 2410.01679): the value of a state is measured by continuations from it, not learned.

1. cut the response into steps, 2. the value of the state before each step is the mean reward of `k` continuations from it, and
responses with the same prefix share its value, 3. a step's advantage is the value after it minus the value before it, on each of its tokens; after the last step the value is the
response's own reward. Train it with {name: ppo, values: none, lam: 0}, whose advantage is then the token reward.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field

from fgrl import DataError, Mean, RewardWrapper, Segmenter, build, register


@register("vine")
class Vine(RewardWrapper):
    """Another reward of whole responses, as differences of Monte Carlo values. The values are the column "value"."""

    own_needs = frozenset({"policy"})
    own_fills = frozenset({"value"})

    segmenter: Segmenter = Field(default_factory=lambda: build(Segmenter, "sentence"))
    """Segmenter that cuts the response into steps."""
    k: int = Field(4, ge=1)
    """Number of continuations per state (9 in the paper)."""

    def needs(self):
        return super().needs() | self.segmenter.rollout_needs()

    def on_tokens(self):
        return True

    def asks_at_most(self, expected):
        """Return None, for unknown: a judge that the reward holds is asked about continuations, too."""

    def score(self, rollout):
        rewards, mask = self.reward.scored(rollout), rollout.mask.cpu()
        # 1. steps; the end-of-sequence token belongs to the last one
        step = self.segmenter.segment_ids_of(rollout).cpu()
        step = torch.where(mask, torch.where(step < 0, step.amax(dim=1, keepdim=True), step), -1)
        places = [
            (row, int((step[row] == number).nonzero()[0]))
            for row in range(len(mask))
            for number in range(int(step[row].max()) + 1)
        ]
        # 2. values of the distinct states
        states = {}
        for row, position in places:
            state = (int(rollout.group[row]), *rollout.response_ids[row, :position].tolist())
            states.setdefault(state, []).append((row, position))
        drawn = rollout.policy.completed([same[0] for same in states.values()], self.k, stream="vine")
        worth = self.reward.scored(drawn).response.cpu().view(len(states), self.k)
        if bool(worth.isnan().any()):
            raise DataError("vine: the reward of a continuation is missing; use a reward that is always known")
        value = torch.zeros(mask.shape)
        for same, mean in zip(states.values(), worth.mean(dim=1).tolist(), strict=True):
            for row, position in same:
                value[row] = torch.where(step[row] == step[row, position], mean, value[row])
        # 3. advantages of steps
        token = torch.zeros(mask.shape)
        for row in range(len(mask)):
            later = float(rewards.response[row])
            for number in range(int(step[row].max()), -1, -1):
                inside = step[row] == number
                before = float(value[row][inside][0])
                token[row] = torch.where(inside, later - before, token[row])
                later = before
        device = rollout.mask.device
        metrics = {**rewards.metrics, "steps": Mean(len(places), len(mask)), "value": Mean(worth.sum(), worth.numel())}
        return replace(
            rewards, token=token.to(device), credit_mask=rollout.mask, segment_ids=step.to(device),
            columns={**rewards.columns, "value": value.to(device)}, metrics=metrics,
        )  # fmt: skip
