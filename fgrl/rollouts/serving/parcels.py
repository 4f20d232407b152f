"""Full weights on their way to servers: the shared part of the transfers `files`, `gloo` and `nccl`."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fgrl.base import ranks
from fgrl.base.files import atomically
from fgrl.kinds import Parcel, ServerRefused, Serving
from fgrl.rollouts.serving import weights
from fgrl.rollouts.serving.connection import Connection
from fgrl.rollouts.serving.weights import Named

SHARD = 4 * 2**30
"""Maximum number of bytes of a file of weights."""
NAME = "policy"
"""Name of the model in requests to servers of full weights."""


def without_weights(model: Any, folder: Path, *arguments: str, **environment: str) -> Serving:
    """Return the settings of a server that begins with random weights: all weights are brought to it later. `folder`
    gets the architecture and the tokenizer.
    """
    weights.check_full(model)
    if not folder.exists():
        config = copy.deepcopy(model.transformer.config)
        config.architectures = [type(model.transformer).__name__]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomically(folder) as partial:
            config.save_pretrained(partial)
            model.tokenizer.save_pretrained(partial)
    own = ("--load-format", "dummy", "--served-model-name", NAME, *arguments)
    return Serving(str(folder), own, dict(environment))


@dataclass(frozen=True)
class Weights:
    """The weights of a model to be sent."""

    shapes: list[tuple[str, list[int]]]
    """Name and shape of each tensor, in the order of `tensors`."""
    dtype: str
    tensors: Callable[[], Iterable[Named]]
    """Function that returns the tensors; each call computes them again."""


class FullParcel(Parcel):
    """All weights of a model. The server keeps the version beside its weights, and gets it after they have arrived
    (`/weight_info`).
    """

    name = NAME

    def __init__(self, version: str, sent: Weights) -> None:
        self.version, self.sent = version, sent

    def arrived(self, server: Connection, limit: float) -> str:
        return reported(server, limit)

    def differing(self, server: Connection, limit: float) -> list[str]:
        return weights.differing(server, [name for name, _ in self.sent.shapes], self.sent.tensors(), limit)


def of_model(model: Any, version: str, dtype: str, *, keep: bool) -> Weights:
    """Return a model's weights. keep: copy the current weights to the CPU. Sharded weights are also gathered now, by
    all processes; rank 0 has the copy, and sends it.
    """
    seed = int(version.rpartition("-")[2])
    shapes = weights.shapes(model)
    first = ranks.place() == 0
    if not model.sharded and not (keep and first):
        return Weights(shapes, dtype, lambda: weights.sent(model, dtype, seed=seed))
    kept = [(name, tensor.to("cpu", copy=True)) for name, tensor in weights.sent(model, dtype, seed=seed) if first]
    return Weights(shapes, dtype, lambda: kept)


def reported(server: Connection, limit: float) -> str:
    """Return the version of its weights that a server reports."""
    answer = server.get("/weight_info", limit=limit)
    return str(answer.get("weight_version")) if isinstance(answer, dict) else ""


def forget_prefixes(server: Connection, limit: float) -> None:
    """Make a server drop its cached prefixes, which were computed with earlier weights."""
    answer = server.call("/reset_prefix_cache", limit=limit)
    if not (isinstance(answer, dict) and answer.get("success")):
        raise ServerRefused(f"/reset_prefix_cache: {answer}: somebody else draws from the server")


# -- files -----------------------------------------------------------------------------------------------------------------


class FileParcel(FullParcel):
    """Weights in files that also contain their version. The server reports the version that it has read from them."""

    def __init__(self, version: str, folder: Path, sent: Weights) -> None:
        super().__init__(version, replace(sent, tensors=self._read))
        self.folder = folder
        if ranks.place() == 0:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with atomically(folder) as partial:
                partial.mkdir()
                for number, shard in enumerate(_shards(sent.tensors())):
                    save_file(shard, str(partial / f"{number:05d}.safetensors"), {"format": "pt", "version": version})

    def deliver(self, server: Connection, limit: float) -> None:
        found = {worker.get("version", "") for worker in server.rpc("fgrl_load", str(self.folder), limit=limit)}
        if len(found) != 1:
            raise ServerRefused(f"the workers have read different versions: {sorted(found)}")
        server.call("/update_weight_version", {"new_version": found.pop()}, limit=limit)
        forget_prefixes(server, limit)

    def _read(self) -> Iterator[Named]:
        for file in sorted(self.folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as content:
                for name in content.keys():  # noqa: SIM118
                    yield name, content.get_tensor(name)

    def discard(self, servers: Iterable[Connection], limit: float) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _shards(tensors: Iterable[Named]) -> Iterator[dict[str, torch.Tensor]]:
    shard: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if shard and size + tensor.nbytes > SHARD:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor.cpu()
        size += tensor.nbytes
    yield shard
