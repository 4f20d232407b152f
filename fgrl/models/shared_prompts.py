"""Computation of a prompt that several rows share: it is made once, and its keys and values are used for all of these
rows, forward and backward.

The result is the same function of the weights as with whole rows, up to the rounding of differently shaped products.
Dropout draws once for a shared prompt.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from fgrl.models.decoding.cache import only_keys_and_values, takes_cache, with_cache
from fgrl.types import Tokens

LEAST_SAVING = 0.1
"""Minimum share of saved tokens for which prompts are shared, because sharing costs a second, shorter pass."""
LENGTH_DEPENDENT = ("longrope", "dynamic")
"""Rotary embeddings whose angles depend on the length of the input, so that a prefix cannot be computed separately."""


def can_share(trunk: nn.Module) -> bool:
    """Return True if a token depends only on the keys and values of the tokens before it.

    It is False for encoders, with recurrent layers, if layers share their keys, or if angles depend on the length.
    """
    config: Any = trunk.config
    if not takes_cache(trunk):
        return False
    if not all(getattr(module, "is_causal", True) for module in trunk.modules()):
        return False
    if any(kind in LENGTH_DEPENDENT for kind in _rope_kinds(getattr(config, "rope_parameters", None))):
        return False
    return only_keys_and_values(DynamicCache(config=config))


def _rope_kinds(parameters: Any) -> Iterator[str]:
    """Yield `rope_type` of a configuration, or of each kind of layer in it."""
    if isinstance(parameters, dict):
        for name, value in parameters.items():
            if name == "rope_type":
                yield value
            else:
                yield from _rope_kinds(value)


def distinct_prompts(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Return `(first, place)`: the first row [D] of each distinct prompt, and for each row [B] the index of its prompt
    among these.
    """
    ids = tokens.prompt_ids.masked_fill(~tokens.prompt_mask, -1)
    different, place = torch.unique(ids, dim=0, return_inverse=True)
    index = torch.arange(len(place), device=place.device)
    first = index.new_full((len(different),), len(place)).scatter_reduce(0, place, index, "amin")
    return first, place


def worth_sharing(rows: int, prompts: int, prompt_length: int, response_length: int) -> bool:
    """Return True if sharing pays off for `rows` rows with these padded lengths and `prompts` distinct prompts."""
    return (rows - prompts) * prompt_length >= LEAST_SAVING * rows * (prompt_length + response_length)


class _PromptLayer(DynamicLayer):
    """Layer that stores the keys and values of the prompts, and returns them for each row, followed by those of the
    responses, which are not stored.
    """

    def __init__(self, place: Tensor) -> None:
        super().__init__()
        self.place = place

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            return super().update(key_states, value_states)
        pairs = ((self.keys, key_states), (self.values, value_states))
        keys, values = (torch.cat([kept.index_select(0, self.place), new], -2) for kept, new in pairs)  # type: ignore[union-attr]
        return keys, values


class _PromptCache(DynamicCache):
    def __init__(self, place: Tensor) -> None:
        super().__init__()
        self.layer_class_to_replicate = lambda: _PromptLayer(place)  # type: ignore[assignment]


def states_after(trunk: nn.Module, inputs: dict[str, Tensor], prompt: int, first: Tensor, place: Tensor) -> Tensor:
    """Return the hidden states [B,T+1,h] from the last prompt token to the end.

    `inputs` are ids, mask and possibly positions [B,P+T] of whole rows whose first `prompt` = P columns are the prompt;
    `first` and `place` are the result of `distinct_prompts`.
    """
    cached = with_cache(trunk, _PromptCache(place))
    before = {name: values[first, :prompt] for name, values in inputs.items()}
    last = trunk(**before, **cached).last_hidden_state[:, -1:]
    after = {name: values if name == "attention_mask" else values[:, prompt:] for name, values in inputs.items()}
    states = trunk(**after, **cached).last_hidden_state
    return torch.cat([last.index_select(0, place), states], 1)


def arrange(
    prompts: Sequence[Hashable],
    prompt_lengths: Sequence[int],
    response_lengths: Sequence[int],
    micro_batch_sizes: Sequence[int],
    *,
    each: int = 1,
    shared: bool = True,
) -> list[int]:
    """Return the order in which units, divided into padded micro-batches of `micro_batch_sizes` units, cost the fewest
    tokens; the longest first.

    A unit is `each` rows with one prompt. Either units of similar length are placed together, or (if `shared` prompts
    are computed once) the units of a prompt.
    """
    whole = [prompt + response for prompt, response in zip(prompt_lengths, response_lengths, strict=True)]
    by_length = sorted(range(len(whole)), key=lambda unit: -whole[unit])
    if not shared or len(set(prompts)) == len(prompts):
        return by_length
    longest: dict[Hashable, int] = {}
    for prompt, length in zip(prompts, whole, strict=True):
        longest[prompt] = max(length, longest.get(prompt, 0))
    number = {prompt: index for index, prompt in enumerate(longest)}
    by_prompt = sorted(range(len(whole)), key=lambda u: (-longest[prompts[u]], number[prompts[u]], -whole[u]))

    def cost(order: Sequence[int]) -> int:
        total = 0
        for start, end in pairwise(accumulate(micro_batch_sizes, initial=0)):
            units = order[start:end]
            if not units:
                continue
            rows, different = each * len(units), len({prompts[unit] for unit in units})
            prompt, response = (max(lengths[unit] for unit in units) for lengths in (prompt_lengths, response_lengths))
            read = different if worth_sharing(rows, different, prompt, response) else rows
            total += read * prompt + rows * response
        return total

    return min(by_length, by_prompt, key=cost)
