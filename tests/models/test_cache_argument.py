"""Transformers calls the argument for keys and values `cache` from 5.24 on, and `past_key_values` before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import DynamicCache

from fgrl.models.decoding.cache import takes_cache, with_cache
from fgrl.models.loading import _forward


class After(nn.Module):
    def forward(self, input_ids: Any, cache: Any = None, use_cache: bool = False) -> Any:
        return cache


class Before(nn.Module):
    def forward(self, input_ids: Any, past_key_values: Any = None, use_cache: bool = False) -> Any:
        return past_key_values


class Neither(nn.Module):
    def forward(self, input_ids: Any) -> Any:
        return input_ids


@pytest.mark.parametrize("trunk", [After(), Before()], ids=["after", "before"])
def test_keys_and_values_are_passed_by_the_name_that_the_model_has(trunk: nn.Module) -> None:
    cache = DynamicCache()
    assert takes_cache(trunk)
    assert trunk(None, **with_cache(trunk, cache)) is cache


def test_an_encoder_takes_none() -> None:
    assert not takes_cache(Neither())


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_layer_that_extends_a_cache_is_not_run_again_by_checkpointing(name: str) -> None:
    runs = []

    def layer(states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        runs.append(kwargs)
        return states * states

    states = torch.ones(2, requires_grad=True)
    _forward(layer, states, **{name: DynamicCache()}).sum().backward()
    assert len(runs) == 1
    _forward(layer, states, **{name: None}).sum().backward()
    assert len(runs) == 3, "without a cache the layer runs again in the backward pass"
