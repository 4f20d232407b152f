"""Keys and values of a batch of responses that grows by one token per step and shrinks when responses end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

ARGUMENTS = ("cache", "past_key_values")
"""Names of the argument for keys and values, in transformers from 5.24 on and before."""


def takes_cache(trunk: nn.Module) -> bool:
    """Return True if a model takes keys and values of earlier tokens."""
    return _argument(type(trunk).forward) is not None


def with_cache(trunk: nn.Module, cache: Cache) -> dict[str, Any]:
    """Return the arguments with which a model reads and extends a cache of keys and values."""
    return {_argument(type(trunk).forward) or ARGUMENTS[-1]: cache, "use_cache": True}


@lru_cache(maxsize=64)
def _argument(forward: Callable[..., Any]) -> str | None:
    names = inspect.signature(forward).parameters
    return next((name for name in ARGUMENTS if name in names), None)


class BufferLayer(CacheLayerMixin):
    """Keys and values for up to `length` tokens, allocated once; each step writes its column. A growing cache would be
    copied at every step.
    """

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.used = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, _, size = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty(rows, heads, self.length, size)
        self.values = value_states.new_empty(rows, heads, self.length, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.used + key_states.shape[2]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.used + query_length, 0

    def get_seq_length(self) -> int:
        return self.used

    def get_max_length(self) -> int:
        return self.length

    def take(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may be repeated."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty(len(rows), *old.shape[1:])
            torch.index_select(old[:, :, : self.used], 0, rows, out=new[:, :, : self.used])
            setattr(self, name, new)


class BufferCache(Cache):
    """A `BufferLayer` for each layer of the model."""

    def __init__(self, layers: int, length: int) -> None:
        self.buffers = [BufferLayer(length) for _ in range(layers)]
        super().__init__(layers=list(self.buffers))

    def take(self, rows: Tensor) -> None:
        for layer in self.buffers:
            layer.take(rows)


def only_keys_and_values(cache: DynamicCache) -> bool:
    """Return True if every layer of a model's default cache has its own keys and values, and no other state."""
    return bool(cache.layers) and all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers
    )


def new_cache(config: Any, length: int) -> BufferCache | DynamicCache:
    """Return a `BufferCache` if every layer attends to keys and values; else the default cache of transformers."""
    default = DynamicCache(config=config)
    if only_keys_and_values(default):
        return BufferCache(len(default.layers), length)
    return default


def take(cache: BufferCache | DynamicCache, rows: Tensor) -> None:
    """Keep these rows of the cache, in this order; a row may be repeated."""
    cache.take(rows) if isinstance(cache, BufferCache) else cache.batch_select_indices(rows)
