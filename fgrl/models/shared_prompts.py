"""Rows that answer the same prompt read it once: its keys and values serve all of them, forward and backward.

The same function of the weights as reading each row whole, up to the rounding of differently shaped products. Dropout
draws once for a shared prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from fgrl.types import Tokens

WORTH = 0.1
"""Prompts are shared where that spares at least this share of the tokens: it costs a second, shorter pass."""


def attends_everywhere(config: Any) -> bool:
    """Does every layer keep keys and values, and nothing else (no recurrent state)?"""
    layers = DynamicCache(config=config).layers
    return bool(layers) and all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)


def distinct_prompts(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """`(rows, place)`: the row [D] of each different prompt, and for each row [B] which of these is its prompt."""
    ids = tokens.prompt_ids.masked_fill(~tokens.prompt_mask, -1)
    different, place = torch.unique(ids, dim=0, return_inverse=True)
    index = torch.arange(len(place), device=place.device)
    first = index.new_full((len(different),), len(place)).scatter_reduce(0, place, index, "amin")
    return first, place


def worth_sharing(rows: int, prompts: int, prompt_length: int, response_length: int) -> bool:
    """Rows [B] with their padded lengths, and how many different prompts they have."""
    return (rows - prompts) * prompt_length >= WORTH * rows * (prompt_length + response_length)


def states_after(
    trunk: Callable[..., Any], inputs: dict[str, Tensor], prompt: int, first: Tensor, place: Tensor
) -> Tensor:
    """Hidden states [B,T+1,h] from the last prompt token on.

    `inputs` are ids, mask and maybe positions [B,P+T] of whole rows whose first `prompt` = P columns are the prompt;
    `first` and `place` are of `distinct_prompts`.
    """
    cache = DynamicCache()
    before = {name: given[first, :prompt] for name, given in inputs.items()}
    last = trunk(**before, past_key_values=cache, use_cache=True).last_hidden_state[:, -1:]
    layer: Any
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys.index_select(0, place), layer.values.index_select(0, place)
    after = {name: given if name == "attention_mask" else given[:, prompt:] for name, given in inputs.items()}
    states = trunk(**after, past_key_values=cache, use_cache=True).last_hidden_state
    return torch.cat([last.index_select(0, place), states], 1)


def arrange(
    prompts: Sequence[Hashable],
    prompt_lengths: Sequence[int],
    response_lengths: Sequence[int],
    size: int,
    *,
    shared: bool = True,
) -> list[int]:
    """The order in which rows, taken `size` at a time and padded, cost the fewest tokens, the longest first.

    Either rows of like length lie together, or (where `shared` prompts are read once) the rows of a prompt.
    """  # fmt: skip
    whole = [prompt + response for prompt, response in zip(prompt_lengths, response_lengths, strict=True)]
    by_length = sorted(range(len(whole)), key=lambda row: -whole[row])
    if not shared or len(set(prompts)) == len(prompts):
        return by_length
    longest: dict[Hashable, int] = {}
    for prompt, length in zip(prompts, whole, strict=True):
        longest[prompt] = max(length, longest.get(prompt, 0))
    number = {prompt: index for index, prompt in enumerate(longest)}
    by_prompt = sorted(range(len(whole)), key=lambda r: (-longest[prompts[r]], number[prompts[r]], -whole[r]))

    def cost(order: Sequence[int]) -> int:
        total = 0
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            prompt, response = (max(lengths[row] for row in rows) for lengths in (prompt_lengths, response_lengths))
            different = len({prompts[row] for row in rows})
            read = different if worth_sharing(len(rows), different, prompt, response) else len(rows)
            total += read * prompt + len(rows) * response
        return total

    return min(by_length, by_prompt, key=cost)
