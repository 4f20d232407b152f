"""Recomputing activations in the backward pass, in training mode and in evaluation mode alike.

transformers' own switch works in training mode only, where dropout is on as well. Reinforcement learning needs the
first without the second: the ratio of new to old probabilities must be 1 before the first step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def checkpoint_layers(model: nn.Module) -> int:
    """Make every transformer layer of `model` discard its activations and recompute them. Returns the number of layers."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layers that can be checkpointed; set gradient_checkpointing: false"
        )
    for layer in layers:
        layer.forward = partial(_forward, layer.forward)  # type: ignore[method-assign]
    return len(layers)


def _forward(forward: Any, *args: Any, **kwargs: Any) -> Any:
    if torch.is_grad_enabled() and kwargs.get("past_key_values") is None:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)
