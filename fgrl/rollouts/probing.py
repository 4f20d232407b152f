"""Probability that a model assigns to a text after a part of a response, such as the right answer after each turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.rollouts.padding import FROZEN_MICRO_BATCH_SIZE, in_micro_batches, pad
from fgrl.types import Rollout, Tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fgrl import models
else:
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")


def logp_of(
    rollout: Rollout, model: Any, places: Sequence[tuple[int, int]], texts: Sequence[str], *, after: str = "",
    micro_batch_size: int = FROZEN_MICRO_BATCH_SIZE,
) -> Tensor:  # fmt: skip
    """Return the mean log-probability of the tokens of each text, nats at temperature 1, float32 [N], without gradient.

    Text i follows the prompt, the first `position` tokens of response `row`, with (row, position) = `places[i]`, and
    `after`, which does not count. The model reads the policy's token ids (`check_same_tokens`). Raises ValueError for a
    text without tokens.
    """

    def ids(text: str) -> list[int]:
        return list(model.tokenizer(text, add_special_tokens=False).input_ids)

    between, counted = ids(after), [ids(text) for text in texts]
    if not all(counted):
        raise ValueError("a text without tokens has no probability")
    prompts = [prompt[real].tolist() for prompt, real in zip(rollout.prompt_ids, rollout.prompt_mask, strict=True)]
    said = [rollout.response_ids[row, :position].tolist() for row, position in places]
    rows = [[*before, *between, *own] for before, own in zip(said, counted, strict=True)]
    tokens = pad([prompts[row] for row, _position in places], rows, model.pad_id, model.eos_ids)
    sizes = torch.tensor([len(own) for own in counted])
    begins = tokens.mask.sum(dim=1, keepdim=True) - sizes[:, None]
    wanted = tokens.mask & (torch.arange(tokens.mask.shape[1]) >= begins)

    def compute(part: Tokens, only: Tensor) -> dict[str, Tensor]:
        return {"logp": model.score_states(model.states(part), part, only=only).logp.float()}

    with torch.no_grad(), models.evaluating(model):
        scored = in_micro_batches(tokens, compute, micro_batch_size, [model], columns=[wanted])
    return scored["logp"].sum(dim=1) / sizes
