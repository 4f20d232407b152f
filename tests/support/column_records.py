"""A rollout, rewards and advantages whose every value is known from its place, with columns that fgrl does not know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fgrl.types import Advantages, Annotation, Rewards, Rollout, Sample, per_prompt_token, per_response, per_token

Lengths = list[tuple[int, int, int]]
"""Prompt tokens, response tokens and criteria of each response."""


@dataclass
class WeightedRewards(Rewards):
    """A reward with columns that the library does not know."""

    weight: Tensor = field(kw_only=True, metadata={"column": per_token(fill=1.0)})
    kind: Tensor = field(kw_only=True, metadata={"column": per_token(fill=-7)})
    difficulty: Tensor = field(kw_only=True, metadata={"column": per_response()})
    prompt_weight: Tensor = field(kw_only=True, metadata={"column": per_prompt_token(fill=0.5)})
    notes: list[str] = field(kw_only=True, metadata={"column": per_response()})


def records(sizes: Lengths, first: int = 0) -> tuple[Rollout, WeightedRewards, Advantages]:
    """Rows whose every value is different and known from its place: `expected` computes it again."""
    mask = _mask([response for _prompt, response, _criteria in sizes])
    prompt_mask = _mask([prompt for prompt, _response, _criteria in sizes]).flip(1)
    count, width = mask.shape
    numbers = [first + i for i in range(count)]
    eos = torch.zeros_like(mask)
    tokens = torch.stack([torch.arange(width) + 100.0 * n for n in numbers])
    criteria = max(criteria for *_lengths, criteria in sizes)
    known = _mask([criteria for *_lengths, criteria in sizes])
    criterion = torch.where(known[:, :, None], tokens[:, None] + 0.25 * torch.arange(criteria)[:, None], math.nan)
    prompts = torch.stack([torch.arange(-prompt_mask.shape[1], 0) + 100.0 * n for n in numbers])

    def padded(value: Tensor, where: Tensor, fill: float) -> Tensor:
        return torch.where(where, value, torch.tensor(fill).to(value.dtype))

    rollout = Rollout(
        prompt_ids=padded(prompts.long() + 5, prompt_mask, 0), prompt_mask=prompt_mask,
        response_ids=padded(tokens.long() + 7, mask, 0), mask=mask, eos=eos, turn=mask.long() - 1,
        group=torch.tensor(numbers) - first,
        samples=[Sample(id=str(n), prompt="") for n in numbers], texts=[str(n) for n in numbers],
        old_logp=padded(tokens, mask, 0), values=padded(-tokens, mask, 0),
    )  # fmt: skip
    rewards = WeightedRewards(
        response=torch.tensor(numbers).float(), token=padded(tokens, mask, 0), credit_mask=mask,
        segment_ids=padded(tokens.long(), mask, -1),
        criterion=torch.where(mask[:, None] | ~known[:, :, None], criterion, 0.0),
        verdict=torch.where(known, 1.0, math.nan), metrics={"rows": 1.0},
        weight=padded(tokens + 0.5, mask, 1.0), kind=padded(tokens.long() + 3, mask, -7),
        difficulty=torch.tensor(numbers) * 2, prompt_weight=padded(prompts, prompt_mask, 0.5),
        notes=[f"note {n}" for n in numbers],
        annotations=[Annotation(critique=f"critique {n}") if n % 3 else None for n in numbers],
    )  # fmt: skip
    return rollout, rewards, Advantages(advantage=padded(tokens + 1, mask, 0))


def _mask(sizes: Sequence[int]) -> Tensor:
    return torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
