"""Small models and token batches."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fgrl import models, rollouts
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.types import Tokens

PROMPTS = [[1, 20, 30, 40], [1, 50], [1, 60, 61, 62, 63, 64, 65]]
RESPONSES = [[70, 71, 72, 2], [80, 2], [90, 91, 92, 93, 94, 95]]


def tiny(folder: Path, *, head: str = "lm", trainable: bool = False, **spec: object) -> models.LanguageModel:
    torch.manual_seed(0)
    return models.load(ModelSpec(base=str(folder), **spec), head=head, trainable=trainable)  # type: ignore[arg-type]


def tokens(prompts: list[list[int]] = PROMPTS, responses: list[list[int]] = RESPONSES) -> Tokens:
    return rollouts.pad(prompts, responses, pad_id=0, eos_ids={2, 3})


def more_padding(batch: Tokens, left: int, right: int, pad_id: int) -> Tokens:
    """The same rows with more columns of padding."""

    def wider(x: Tensor, fill: int, before: int, after: int) -> Tensor:
        return torch.nn.functional.pad(x, (before, after), value=fill)

    return Tokens(
        wider(batch.prompt_ids, pad_id, left, 0),
        wider(batch.prompt_mask, 0, left, 0),
        wider(batch.response_ids, pad_id, 0, right),
        wider(batch.mask, 0, 0, right),
        wider(batch.eos, 0, 0, right),
    )


def stir(model: models.LanguageModel, size: float = 0.1) -> None:
    """Give the adapter that is trained an effect."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.net.named_parameters():
        if "lora_B" in name and parameter.requires_grad:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * size)


LORA = LoraSpec(r=4, alpha=8, dropout=0.3)
