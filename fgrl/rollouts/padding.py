"""Token ids as padded tensors, and parts of such tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fgrl import lazy
from fgrl.types import Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


def pad(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    pad_id: int,
    eos_ids: Iterable[int],
    device: Any = None,
) -> Tokens:
    """Prompts [B,P] padded on the left, responses [B,T] on the right.

    `eos` marks a response's last token when it is one of `eos_ids`; padding with the same id is never marked.
    """
    ends = set(eos_ids)
    prompt_ids, prompt_mask = _padded(prompts, pad_id, left=True)
    response_ids, mask = _padded(responses, pad_id, left=False)
    eos = torch.zeros_like(mask)
    for row, response in enumerate(responses):
        if len(response) and response[-1] in ends:
            eos[row, len(response) - 1] = True
    tokens = Tokens(prompt_ids, prompt_mask, response_ids, mask, eos)
    return tokens if device is None else tokens.to(device)


def _padded(rows: Sequence[Sequence[int]], pad_id: int, *, left: bool) -> tuple[Tensor, Tensor]:
    width = max(1, *(len(row) for row in rows)) if rows else 1
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for index, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[index, place] = torch.tensor(row, dtype=torch.long)
        mask[index, place] = True
    return ids, mask


def trim(tokens: Tokens) -> Tokens:
    """Without the columns that are padding in every row (one column is always left)."""
    prompts = int(tokens.prompt_mask.sum(1).max().clamp_min(1)) if len(tokens.mask) else 1
    responses = int(tokens.mask.sum(1).max().clamp_min(1)) if len(tokens.mask) else 1
    return Tokens(
        tokens.prompt_ids[:, -prompts:],
        tokens.prompt_mask[:, -prompts:],
        tokens.response_ids[:, :responses],
        tokens.mask[:, :responses],
        tokens.eos[:, :responses],
    )


def select(tokens: Tokens, rows: Any) -> Tokens:
    """Some rows of `tokens` (of a `Rollout`: their ids and masks)."""
    return Tokens(
        tokens.prompt_ids[rows],
        tokens.prompt_mask[rows],
        tokens.response_ids[rows],
        tokens.mask[rows],
        tokens.eos[rows],
    )
