"""Weights of a model in the form that an engine gets: under the names of a checkpoint, in the engine's type, with
merged adapters; and a check that the engine has them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from fgrl.base.errors import Unavailable, UsageError
from fgrl.models.decoding import copies
from fgrl.models.language_model import NEWEST
from fgrl.rollouts.serving.connection import Connection

Named = tuple[str, Tensor]


def torch_dtype(name: str) -> torch.dtype:
    """Return the type with this name."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


@torch.no_grad()
def sent(model: Any, dtype: str, *, seed: int = 0, merge: bool = True) -> Iterator[Named]:
    """Yield name and tensor of each weight of a `LanguageModel`, on its device, in `dtype`; shared weights once.

    If the weights are sharded, all processes iterate over all of them.

    With `merge` active adapters are added; in bfloat16 such a sum is rounded stochastically, the same way for the same
    `seed`. Without it the base weights are yielded. Raises `UsageError` for adapters that cannot be merged and for
    quantized weights.
    """
    net, target = model.transformer, torch_dtype(dtype)
    noise = torch.Generator(model.device).manual_seed(seed % 2**63)
    for name, weight in _state(model).items():
        path, _, leaf = name.rpartition(".")
        layer = net.get_submodule(path) if hasattr(net, "get_submodule") and merge and _is_adapted(net, path) else None
        if layer is not None and leaf == "weight" and copies.active_adapters(layer):
            if not copies.can_merge(layer):
                raise UsageError(f"the adapter of {path} is no plain LoRA, and cannot be merged into its weight")
            yield name, copies.in_type(copies.merged(layer), target, noise).contiguous()
        else:
            yield name, copies.whole(weight.detach()).to(target).contiguous()


def _is_adapted(net: Any, path: str) -> bool:
    try:
        return hasattr(net.get_submodule(path), "lora_A")
    except AttributeError:  # a name of the checkpoint that the module does not have
        return False


def check_full(model: Any) -> None:
    """Raise `UsageError` for a model whose full weights cannot be sent."""
    if model.spec.quantize:
        raise UsageError(
            f"{model.spec.base} is loaded in 4 bits, and full weights of it cannot be sent: train an adapter and leave `transfer` to its "
            "default, which sends that alone"
        )


def _state(model: Any) -> dict[str, Tensor]:
    """Return the base weights, without adapters, by their names in the checkpoint."""
    check_full(model)
    weights, seen = {}, set()
    for name, weight in model.transformer.state_dict(keep_vars=True).items():
        if ".lora_" not in name and weight.is_floating_point() and id(weight) not in seen:  # tied weights are sent once
            seen.add(id(weight))
            weights[name.replace(".base_layer.", ".")] = weight
    converted: dict[str, Tensor] = revert_weight_conversion(model.transformer, weights)
    return converted


def adapter(model: Any, dtype: str) -> Iterator[Named]:
    """Yield the matrices of the trained adapter in the form that an engine multiplies by: B includes the scale."""
    target = torch_dtype(dtype)
    with torch.no_grad():
        for path, layer in model.transformer.named_modules():
            if not hasattr(layer, "lora_A") or NEWEST not in layer.lora_A:
                continue
            up = copies.whole(layer.lora_B[NEWEST].weight.detach()).to(target)
            scale = layer.scaling[NEWEST]
            yield f"{path}.lora_A", copies.whole(layer.lora_A[NEWEST].weight.detach()).to(target)
            yield f"{path}.lora_B", up if scale == 1 else up * scale


def digest(tensor: Tensor) -> str:
    """Return the sha256 of the bytes of a tensor."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
    return hashlib.sha256(flat.numpy().data).hexdigest()


def shapes(model: Any) -> list[tuple[str, list[int]]]:
    """Return name and shape of each tensor of `sent`."""
    return [(name, list(weight.shape)) for name, weight in _state(model).items()]


def differing(server: Connection, names: Sequence[str], tensors: Iterable[Named], limit: float) -> list[str]:
    """Return the names of the weights that the workers of a server do not have, with the differences."""
    return compare(tensors, server.rpc("fgrl_digests", json.dumps(names), limit=limit))


def differing_adapter(server: Connection, name: str, tensors: Iterable[Named], limit: float) -> list[str]:
    """Return `differing` for the adapter that the server calls `name`, which must have exactly these matrices."""
    named = dict(tensors)
    workers = server.rpc("fgrl_adapter", name, limit=limit)
    others = sorted(set().union(*workers) - named.keys())
    return [*compare(named.items(), workers), *(f"{other} (it was not sent)" for other in others)]


def compare(tensors: Iterable[Named], workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the differences between tensors and the parts that the workers report. Together the parts must be the
    whole.
    """
    wrong = []
    for name, tensor in tensors:
        parts = [worker.get(name) for worker in workers]
        if not all(isinstance(part, Mapping) for part in parts):
            wrong.append(f"{name} (the server does not have it)")
            continue
        places = {json.dumps([part["rows"], part["columns"]]): part for part in parts if part is not None}
        held = 0
        for part in places.values():
            rows = torch.cat([tensor[first:last] for first, last in part["rows"]])
            own = rows if part["columns"] is None else rows[:, part["columns"][0] : part["columns"][1]]
            held += own.numel()
            if digest(own) != part["digest"]:
                wrong.append(f"{name} (another content)")
                break
        else:
            if held != tensor.numel():
                wrong.append(f"{name} (the server has {held:,} of {tensor.numel():,} numbers)")
    return wrong


def need_gpu(what: str) -> None:
    """Raise `Unavailable` if there is no GPU."""
    if not torch.cuda.is_available():
        raise Unavailable(
            f"the transfer {what} copies between GPUs, and none is visible here: leave `transfer` to its default, or use gloo"
        )
