"""Weights prepared for a decoding loop: adapters merged, types already converted.

A decoding step multiplies a few rows by every weight, so a layer's fixed costs exceed its arithmetic: the two small
products of an adapter, or autocast's conversion of the weight at every call. Inside `decoding_weights` the layers
use converted copies; the model itself is not changed, so leaving the context restores it exactly.

Rounding W + BA to the nearest bfloat16 would lose an adapter's small updates, so the sum is rounded stochastically
(with a seed) and unbiased. This changes probabilities as little as bfloat16 products change between batch sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import linear


@contextmanager
def decoding_weights(model: Any, seed: int) -> Iterator[int]:
    """Let layers of a `LanguageModel` that benefit from it compute with a copy of their weight inside the context.
    Yields the number of these layers.

    Unchanged are layers that need no copy, and layers that are quantized, sharded, or have adapters other than plain
    LoRA. For use without gradients, and without changes of adapters or autocast inside.
    """
    changed: list[nn.Module] = []
    layers = dict.fromkeys([*model.trunk.modules(), *([model.output_layer] if model.number is None else [])])
    inner = {layer.base_layer for layer in layers if hasattr(layer, "base_layer")}
    noise = torch.Generator(model.device).manual_seed(seed % 2**63)
    try:
        with torch.no_grad():
            for layer in layers:
                weight = None if layer in inner or "forward" in vars(layer) else _copy(layer, noise)
                if weight is not None:
                    bias = getattr(layer, "base_layer", layer).bias
                    layer.forward = partial(_multiply, weight, None if bias is None else bias.to(weight.dtype))
                    changed.append(layer)
        yield len(changed)
    finally:
        for layer in changed:
            del layer.forward


@contextmanager
def in_type_of(net: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Replace the floating-point parameters of a network inside the context by copies of this type, rounded to the
    nearest; parameters that already have the type stay. Afterwards the network has its own, unchanged parameters again.
    """
    own = [weight for weight in net.parameters() if weight.is_floating_point() and weight.dtype != dtype]
    copied: dict[Any, Any] = {each: nn.Parameter(each.detach().to(dtype), requires_grad=False) for each in own}
    places = [(m._parameters, name, w) for m in net.modules() for name, w in m._parameters.items() if w in copied]
    try:
        for parameters, name, weight in places:
            parameters[name] = copied[weight]
        yield
    finally:
        for parameters, name, weight in places:
            parameters[name] = weight


def _multiply(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return linear(x.to(weight.dtype), weight, bias)


def _copy(layer: Any, noise: torch.Generator) -> Tensor | None:
    """Return the weight to use instead of the layer's own, or None to leave the layer unchanged."""
    base = getattr(layer, "base_layer", layer)
    if not isinstance(base, nn.Linear) or type(base.weight) is not nn.Parameter:
        return None
    weight = base.weight
    if weight.shape != (base.out_features, base.in_features) or not weight.is_floating_point():
        return None
    device = weight.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    if base is layer:
        return weight.to(dtype) if dtype != weight.dtype else None
    if not can_merge(layer):
        return None
    adapters = active_adapters(layer)
    if not adapters:
        return weight.to(dtype) if dtype != weight.dtype else None
    return in_type(merged(layer), dtype, noise)


def can_merge(layer: Any) -> bool:
    """Return True if the active adapters of a layer are plain LoRA."""
    if not hasattr(layer, "lora_A") or getattr(layer, "lora_variant", None):
        return False
    return all(layer.lora_B[name].bias is None for name in active_adapters(layer))


def active_adapters(layer: Any) -> list[str]:
    """Return the names of the adapters that a layer of peft adds."""
    return [name for name in layer.active_adapters if name in layer.lora_A and not layer.disable_adapters]


def merged(layer: Any) -> Tensor:
    """Return W + BA in float32, for the active adapters of a layer for which `can_merge` is True."""
    total = whole(layer.base_layer.weight).float()
    with torch.autocast(total.device.type, enabled=False):
        for name in active_adapters(layer):
            down, up = (whole(part[name].weight).float() for part in (layer.lora_A, layer.lora_B))
            total = total.addmm(up, down, alpha=layer.scaling[name])
    return total


def whole(weight: Tensor) -> Tensor:
    """Return the whole weight. If it is sharded over the processes, all processes call this."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def in_type(total: Tensor, dtype: torch.dtype, noise: torch.Generator) -> Tensor:
    """Return a merged weight in the type in which it is used."""
    return round_stochastically(total, noise) if dtype == torch.bfloat16 else total.to(dtype)


def round_stochastically(x: Tensor, noise: torch.Generator) -> Tensor:
    """Round float32 to bfloat16, to the neighbour below or above with the probabilities that preserve the mean."""
    bits = x.float().contiguous().view(torch.int32)
    cut = torch.randint(0, 2**16, bits.shape, generator=noise, dtype=torch.int32, device=bits.device)
    return (bits + cut).bitwise_and_(-(2**16)).view(torch.float32).to(torch.bfloat16)
