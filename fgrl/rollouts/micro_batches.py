"""Forward passes over more rows than go through a model at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fgrl import lazy
from fgrl.rollouts.padding import select, trim
from fgrl.types import Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
else:
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")


FROZEN_MICRO_BATCH_SIZE = 16
"""Rows of one pass of a frozen model over given responses, where no setting of the recipe chooses it."""


def in_micro_batches(
    tokens: Tokens,
    compute: Callable[[Tokens], dict[str, Tensor]],
    micro_batch_size: int,
    device: Any = None,
    *,
    shared: bool = True,
) -> dict[str, Tensor]:
    """Run `compute` over micro-batches of rows, each trimmed, and put the [b,t] results back in order.

    Rows of one micro-batch have similar lengths or, where the models of `compute` read `shared` prompts once, a prompt in
    common (`models.arrange`). Results are zero-padded to [B,T] and returned on the device of `tokens`.
    """
    home = tokens.mask.device
    prompts = [tuple(row) for row in tokens.prompt_ids.masked_fill(~tokens.prompt_mask, -1).tolist()]
    lengths, responses = tokens.prompt_mask.sum(1).tolist(), tokens.mask.sum(1).tolist()
    sizes = [min(micro_batch_size, len(prompts) - start) for start in range(0, len(prompts), micro_batch_size)]
    chosen = models.arrange(prompts, lengths, responses, sizes, shared=shared)
    order = torch.tensor(chosen, dtype=torch.long, device=home)
    whole: dict[str, Tensor] = {}
    for start in range(0, len(order), micro_batch_size):
        rows = order[start : start + micro_batch_size]
        part = trim(select(tokens, rows))
        for name, result in compute(part if device is None else part.to(device)).items():
            if name not in whole:
                whole[name] = torch.zeros(tokens.mask.shape, dtype=result.dtype, device=home)
            whole[name][rows, : result.shape[1]] = result.to(home)
    return whole
