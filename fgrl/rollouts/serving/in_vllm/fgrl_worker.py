"""The part of fgrl that runs inside vLLM's workers: `--worker-extension-cls fgrl_worker.Extension`.

It receives weights (over gloo or NCCL, or from files) and reports its weights: sha256 of each tensor under its name in
the checkpoint, with fused tensors split again. A part of a tensor that a worker holds is given as `rows`, pairs of
first and last + 1, and `columns`, such a pair or null for all of them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.lora.worker_manager import WorkerLoRAManager
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

Rows = list[tuple[int, int]]


# -- receiving -------------------------------------------------------------------------------------------------------------


PART = 2**22
"""Number of values whose fingerprint is computed at once."""
RECEIVED: list[str] = []
"""Fingerprints of the buckets of the last transfer."""


@dataclass
class Group(WeightTransferInitInfo):
    """Process group of the trainer, which has rank 0, and all workers of all servers."""

    address: str = ""
    port: int = 0
    size: int = 2
    first: int = 1
    """Rank of the first worker of this server."""
    seconds: float = 60.0


@dataclass
class Tensors(WeightTransferUpdateInfo):
    """Sent tensors, in their order."""

    names: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)
    dtype: str = ""
    counts: list[int] = field(default_factory=list)
    """Number of tensors in each bucket."""


class Broadcast(WeightTransferEngine[Group, Tensors]):
    """Weights that the trainer broadcasts, several tensors at a time."""

    init_info_cls = Group
    update_info_cls = Tensors
    backend = "gloo"

    def init_transfer_engine(self, info: Group) -> None:
        from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore

        limit, rank = timedelta(seconds=info.seconds), info.first + torch.distributed.get_rank()
        self.store: Any = TCPStore(info.address, info.port, info.size, is_master=False, timeout=limit)
        store = PrefixStore("weights", self.store)
        if self.backend == "gloo":
            gloo: Any = ProcessGroupGloo
            own = gloo._Options()
            own._devices, own._timeout = [gloo.create_device(hostname=_towards(info.address))], limit
            self.group: Any = gloo(store, rank, info.size, own)
        else:
            from torch.distributed import ProcessGroupNCCL

            options = ProcessGroupNCCL.Options()
            options._timeout = limit
            self.group = ProcessGroupNCCL(store, rank, info.size, options)

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, info: Tensors) -> None:
        device = "cpu" if self.backend == "gloo" else self.device

        RECEIVED.clear()

        def received() -> Iterator[tuple[str, torch.Tensor]]:
            tensors = iter(zip(info.names, info.shapes, strict=True))
            for count in info.counts:
                bucket = list(islice(tensors, count))
                sizes = [prod(shape) for _, shape in bucket]
                flat = torch.empty(sum(sizes), dtype=getattr(torch, info.dtype), device=device)
                self.group.broadcast(flat, 0).wait()
                RECEIVED.append(fingerprint(flat))
                for (name, shape), part in zip(bucket, torch.split(flat, sizes), strict=True):
                    yield name, part.view(shape)

        self.model.load_weights(received())

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        _pack_again(self.model)

    def shutdown(self) -> None:
        self.group = None


class NcclBroadcast(Broadcast):
    """Weights that the trainer broadcasts between GPUs."""

    backend = "nccl"


def _towards(address: str) -> str:
    """Return the address of this machine that can be reached from `address`."""
    kind, *_, there = socket.getaddrinfo(address, 80, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as way:
        way.connect(there)  # sends nothing: it chooses the way there
        return str(way.getsockname()[0])


def fingerprint(flat: torch.Tensor) -> str:
    """Return a sum over the bits of all numbers, each multiplied by its place, modulo 2^64, as the trainer computes it."""
    bits = flat.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[flat.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for start in range(0, len(bits), PART):
        part = bits[start : start + PART].to(torch.int64)
        total += (part * (2 * torch.arange(start, start + len(part), device=flat.device) + 1)).sum()
    return f"{int(total) % 2**64:016x}"


WeightTransferEngineFactory.register_engine("fgrl_gloo", Broadcast)
WeightTransferEngineFactory.register_engine("fgrl_nccl", NcclBroadcast)


# -- what the worker has ---------------------------------------------------------------------------------------------------


def _keep_weights() -> None:
    """Keep the weights that vLLM repacks. On a CPU it multiplies by repacked copies of weights. For linear layers it
    drops the original tensor, which is kept beside the layer here, in a list that torch does not count as a parameter.
    For other layers vLLM keeps the tensor, which may change later, so the digest of the repacked one is stored.
    """

    @functools.wraps(_pack)
    def keeping(layer: Any, remove_weight: bool) -> None:
        weight = layer.weight.detach()
        _pack(layer, remove_weight)
        layer.fgrl_kept = [weight] if not layer.weight.numel() else []
        layer.fgrl_packed = "" if layer.fgrl_kept else digest(weight)

    utils.dispatch_cpu_unquantized_gemm = keeping


def _pack_again(model: Any) -> None:
    """Repack an output layer that shares its weight with the embedding after new weights. It gets no weights of its
    own, and would otherwise continue to multiply by a copy of the old weight.
    """
    for layer in model.modules():
        if getattr(layer, "fgrl_packed", "") and digest(layer.weight) != layer.fgrl_packed:
            utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)


def _remember_names() -> None:
    """Store the name beside each adapter, because the workers know adapters only by numbers."""
    original = WorkerLoRAManager._load_adapter

    @functools.wraps(original)
    def named(self: Any, request: Any) -> Any:
        lora = original(self, request)
        lora.fgrl_name = request.lora_name
        return lora

    WorkerLoRAManager._load_adapter = named


_pack = utils.dispatch_cpu_unquantized_gemm
_keep_weights()
_remember_names()


def digest(tensor: torch.Tensor) -> str:
    """Return the sha256 of the bytes of a tensor."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
    return hashlib.sha256(flat.numpy().data).hexdigest()


def _entry(tensor: torch.Tensor, rows: Rows, columns: tuple[int, int] | None = None) -> dict[str, Any]:
    return {"digest": digest(tensor), "rows": rows, "columns": columns}


def _own(layer: Any, leaf: str) -> torch.Tensor | None:
    kept = getattr(layer, "fgrl_kept", None) if leaf == "weight" else None
    return kept[0] if kept else getattr(layer, leaf, None)


def _blocks(layer: Any, leaf: str) -> list[tuple[int, int, int]]:
    """Return (first row here, first row of the block in its tensor, rows) for each of the tensors that a layer fuses."""
    rank, size = layer.tp_rank, layer.tp_size
    if isinstance(layer, QKVParallelLinear):
        heads, kv = layer.num_heads * layer.head_size, layer.num_kv_heads * layer.head_size
        values = layer.num_kv_heads * layer.v_head_size
        part = rank // layer.num_kv_head_replicas
        return [(0, rank * heads, heads), (heads, part * kv, kv), (heads + kv, part * values, values)]
    blocks, here = [], 0
    for whole in layer.output_sizes:
        blocks.append((here, rank * (whole // size), whole // size))
        here += whole // size
    return blocks


def _whole_sizes(layer: Any) -> list[int]:
    if isinstance(layer, QKVParallelLinear):
        kv = layer.total_num_kv_heads
        return [layer.total_num_heads * layer.head_size, kv * layer.head_size, kv * layer.v_head_size]
    return list(layer.output_sizes)


def _part(layer: Any, leaf: str, index: int | None) -> dict[str, Any] | None:
    """Return this worker's part of a tensor of a layer. `index`: number of the tensor among those that the layer fuses."""
    tensor = _own(layer, leaf)
    if tensor is None:
        return None
    if isinstance(layer, QKVParallelLinear | MergedColumnParallelLinear):
        blocks = _blocks(layer, leaf)
        if index is not None:
            here, first, count = blocks[index]
            return _entry(tensor[here : here + count], [(first, first + count)])
        before = [sum(_whole_sizes(layer)[:number]) for number in range(len(blocks))]
        rows = [(start + first, start + first + count) for start, (_, first, count) in zip(before, blocks, strict=True)]
        return _entry(tensor, rows)
    if index is not None:
        return None
    count = tensor.shape[0]
    if isinstance(layer, VocabParallelEmbedding):
        first, last = layer.shard_indices.org_vocab_start_index, layer.shard_indices.org_vocab_end_index
        return _entry(tensor[: last - first], [(first, last)])
    if isinstance(layer, ColumnParallelLinear):
        first = layer.tp_rank * count
        return _entry(tensor, [(first, first + count)])
    if isinstance(layer, RowParallelLinear) and tensor.ndim == 2:
        width = tensor.shape[1]
        return _entry(tensor, [(0, count)], (layer.tp_rank * width, (layer.tp_rank + 1) * width))
    return _entry(tensor, [(0, count)])


def _find(model: Any, name: str) -> dict[str, Any] | None:
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    if mapper is not None:
        name = mapper.get_rename_mapper().map_name(name) or name
    path, _, leaf = name.rpartition(".")
    above, _, last = path.rpartition(".")
    places = [(path, None)]
    for fused, parts in (getattr(model, "packed_modules_mapping", None) or {}).items():
        if last in parts and fused != last:
            places.append((f"{above}.{fused}".lstrip("."), parts.index(last)))
    for place, index in places:
        try:
            layer = model.get_submodule(place)
        except AttributeError:
            continue
        layer = getattr(layer, "base_layer", layer)
        if (found := _part(layer, leaf, index)) is not None:
            return found
    return None


class Extension:
    """Methods that are added to vLLM's worker; `/collective_rpc` calls them."""

    def fgrl_digests(self, names: str) -> dict[str, Any]:
        """Return digests of the tensors with these names in the checkpoint (JSON list); null for a tensor that is not
        found.
        """
        model = self.model_runner.get_model()  # type: ignore[attr-defined]
        found = {name: _find(model, name) for name in json.loads(names)}
        for layer in model.modules():
            if (packed := getattr(layer, "fgrl_packed", "")) and packed != (now := digest(layer.weight)):
                for part in found.values():
                    if part is not None and part["digest"] == now:
                        part["digest"] = f"of a copy: {packed}"
        return found

    def fgrl_adapter(self, name: str) -> dict[str, Any]:
        """Return digests of the matrices of an adapter as its layers use them; {} if it is not loaded."""
        manager = self.model_runner.lora_manager._adapter_manager  # type: ignore[attr-defined]
        found = next((one for one in manager.list_adapters().values() if getattr(one, "fgrl_name", "") == name), None)
        if found is None:
            return {}
        manager.activate_adapter(found.id)
        slot, whole = manager.lora_index_to_id.index(found.id), {}
        for path, layer in manager.modules.items():
            weights = found.get_lora(path)
            if weights is None:
                continue
            parts = manager.packed_modules.get(path) or [path]
            packed = weights.is_packed
            for index, part in enumerate(parts):
                down = weights.lora_a[index] if packed else weights.lora_a
                up = weights.lora_b[index] if packed else weights.lora_b
                if down is None:
                    continue
                if layer.tp_size == 1:  # what is multiplied by; with several devices each holds a part of it
                    rank = down.shape[0]
                    down = layer.lora_a_stacked[index][slot, 0, :rank, : down.shape[1]]
                    up = layer.lora_b_stacked[index][slot, 0, : up.shape[0], :rank]
                whole[f"{part}.lora_A"] = _entry(down, [(0, down.shape[0])])
                whole[f"{part}.lora_B"] = _entry(up, [(0, up.shape[0])])
        return whole

    def fgrl_received(self) -> list[str]:
        """Return fingerprints of the buckets of the last transfer."""
        return RECEIVED

    def fgrl_load(self, folder: str) -> dict[str, Any]:
        """Load the safetensors files of a folder. Return the version in them."""
        files = sorted(Path(folder).glob("*.safetensors"))
        versions = set()

        def read() -> Iterator[tuple[str, torch.Tensor]]:
            for file in files:
                with safe_open(file, framework="pt") as content:
                    versions.add((content.metadata() or {}).get("version", ""))
                    for name in content.keys():  # noqa: SIM118
                        yield name, content.get_tensor(name)

        self.model_runner.reload_weights(weights_iterator=read(), is_checkpoint_format=True)  # type: ignore[attr-defined]
        _pack_again(self.model_runner.get_model())  # type: ignore[attr-defined]
        if len(versions) != 1:
            raise ValueError(f"the files of {folder} are of the versions {sorted(versions)}")
        return {"version": versions.pop()}
