"""Full weights on their way to servers: what the transfers `files`, `gloo`, `nccl` and `ipc` have in common."""

from __future__ import annotations

import copy
import shutil
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import distributed

from fgrl.files import atomically
from fgrl.kinds import Parcel, Serving
from fgrl.serving import weights
from fgrl.serving.connection import Connection, Refused, ServerGone
from fgrl.serving.weights import Named

SHARD = 4 * 2**30
"""Bytes of a file of weights."""
NAME = "policy"
"""Under which servers of full weights are asked."""


def without_weights(model: Any, folder: Path, *arguments: str, **environment: str) -> Serving:
    """Return the settings of a server that begins with random weights: all of them are brought to it. `folder` gets the
    architecture and the tokenizer.
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


class FullParcel(Parcel):
    """All weights of a model. The version is the one that the server keeps beside its weights, which it gets when they have
    arrived (`/weight_info`).
    """

    name = NAME

    def __init__(self, version: str, tensors: Callable[[], Iterable[Named]]) -> None:
        """Tensors: the weights, each time it is called."""
        self.version, self._tensors = version, tensors

    def arrived(self, server: Connection, limit: float) -> str:
        return reported(server, limit)

    def differing(self, server: Connection, limit: float) -> list[str]:
        return weights.differing(server, self._tensors(), limit)


def of_model(model: Any, version: str, dtype: str, *, keep: bool) -> Callable[[], Iterable[Named]]:
    """Return what gives a model's weights; keep: as they are now, copied to the CPU."""
    seed = int(version.rpartition("-")[2])
    if not keep:
        return lambda: weights.sent(model, dtype, seed=seed)
    kept = [(name, tensor.to("cpu", copy=True)) for name, tensor in weights.sent(model, dtype, seed=seed)]
    return lambda: kept


def reported(server: Connection, limit: float) -> str:
    """Return the version of its weights that a server reports."""
    answer = server.get("/weight_info", limit=limit)
    return str(answer.get("weight_version")) if isinstance(answer, dict) else ""


def forget_prefixes(server: Connection, limit: float) -> None:
    """Make a server forget what it has computed of prompts, with weights that it had before."""
    answer = server.call("/reset_prefix_cache", limit=limit)
    if not (isinstance(answer, dict) and answer.get("success")):
        raise Refused(f"/reset_prefix_cache: {answer}: somebody else draws from the server")


# -- files -----------------------------------------------------------------------------------------------------------------


class FileParcel(FullParcel):
    """Weights in files, which have their version in them. The server reports the one that it has read there."""

    def __init__(self, version: str, folder: Path, tensors: Iterable[Named]) -> None:
        super().__init__(version, self._read)
        self.folder = folder
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with atomically(folder) as partial:
                partial.mkdir()
                for number, shard in enumerate(_shards(tensors)):
                    save_file(shard, str(partial / f"{number:05d}.safetensors"), {"format": "pt", "version": version})

    def deliver(self, server: Connection, limit: float) -> None:
        found = {worker.get("version", "") for worker in server.rpc("fgrl_load", str(self.folder), limit=limit)}
        if len(found) != 1:
            raise Refused(f"the workers have read different versions: {sorted(found)}")
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


# -- the phases of vLLM's weight transfer ----------------------------------------------------------------------------------


def in_phases(server: Connection, version: str, send: Callable[[], None], limit: float) -> None:
    """Bring weights to a server by its own interface: `send` does it between the phases, and the version goes last."""
    server.call("/start_weight_update", limit=limit)
    send()
    server.call("/finish_weight_update", {"weight_version": version}, limit=limit)
    forget_prefixes(server, limit)


class BroadcastParcel(FullParcel):
    """Weights that are broadcast to the workers of a server, through a process group that lasts as long as the transfer."""

    def __init__(self, version: str, tensors: Callable[[], Iterable[Named]], backend: str) -> None:
        super().__init__(version, tensors)
        self.backend = backend

    def deliver(self, server: Connection, limit: float) -> None:
        workers = server.get("/get_world_size", limit=limit)["world_size"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        info = {"address": "127.0.0.1", "port": port, "size": workers + 1, "seconds": limit}
        wait = timedelta(seconds=limit)
        store = distributed.TCPStore("127.0.0.1", port, workers + 1, True, wait, wait_for_workers=False)
        joined = _Beside(server, "/init_weight_transfer_engine", {"init_info": info}, limit)
        try:
            group = self._group(distributed.PrefixStore("weights", store), workers + 1, wait)
            joined.result()
            in_phases(server, self.version, lambda: self._broadcast(server, group, limit), limit)
            server.call("/shutdown_weight_transfer_engine", limit=limit)
        except RuntimeError as error:  # of the process group: the other side is gone, or does not come
            raise ServerGone(f"the transfer broke off: {str(error).splitlines()[0][:300]}") from None

    def _group(self, store: Any, size: int, wait: timedelta) -> Any:
        if self.backend == "gloo":
            return distributed.ProcessGroupGloo(store, 0, size, wait)
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = wait
        return distributed.ProcessGroupNCCL(store, 0, size, options)

    def _broadcast(self, server: Connection, group: Any, limit: float) -> None:
        held = self.described()
        received = _Beside(server, "/update_weights", {"update_info": held}, limit)
        for _name, tensor in self._tensors():
            group.broadcast(tensor.cpu() if self.backend == "gloo" else tensor, 0).wait()
            received.raise_early()
        received.result()

    def described(self) -> dict[str, list[Any]]:
        """Return names, types and shapes of what is sent."""
        held: dict[str, list[Any]] = {"names": [], "dtypes": [], "shapes": []}
        for name, tensor in self._tensors():
            held["names"].append(name)
            held["dtypes"].append(str(tensor.dtype).removeprefix("torch."))
            held["shapes"].append(list(tensor.shape))
        return held


class _Beside:
    """A call to a server in another thread: it answers when the transfer has reached it."""

    def __init__(self, server: Connection, path: str, body: Any, limit: float) -> None:
        self._problem: BaseException | None = None

        def call() -> None:
            try:
                server.call(path, body, limit=limit)
            except (ServerGone, Refused) as problem:
                self._problem = problem

        self._thread = threading.Thread(target=call, name="transfer", daemon=True)
        self._thread.start()
        self._limit = limit

    def raise_early(self) -> None:
        """Raise what the call has raised, if it is over."""
        if self._problem is not None:
            raise self._problem

    def result(self) -> None:
        """Wait until the call is over."""
        self._thread.join(self._limit)
        self.raise_early()
        if self._thread.is_alive():
            raise ServerGone(f"no answer within {self._limit:g} s")
