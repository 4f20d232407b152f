"""Conversions that peft's layers do at every call without need."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def skip_casts(net: nn.Module) -> int:
    """Under autocast, adapters in `net` use their input unconverted. Returns the number of adapted layers.

    peft converts a bfloat16 input to the float32 of its weights, and autocast converts it back: the same numbers, but two more
    copies per layer in each pass and another activation to keep for the backward pass.
    """
    layers: list[nn.Module] = [layer for layer in net.modules() if hasattr(layer, "_cast_input_dtype")]
    for layer in layers:
        layer._cast_input_dtype = _cast  # type: ignore[assignment]
    return len(layers)


def _cast(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return x if x is None or torch.is_autocast_enabled(x.device.type) else x.to(dtype)
