"""Full weights on their way to servers: what the transfers `files`, `gloo`, `nccl` and `ipc` have in common."""

from __future__ import annotations

import copy
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import distributed

from fgrl.base import ranks, stops
from fgrl.base.files import atomically
from fgrl.kinds import Parcel, Serving
from fgrl.rollouts.serving import weights
from fgrl.rollouts.serving.connection import Connection, Refused, ServerGone
from fgrl.rollouts.serving.weights import Named

SHARD = 4 * 2**30
"""Bytes of a file of weights."""
POLL = 0.02
"""Seconds between two looks at a transfer."""
GRACE = 5.0
"""Seconds after the limit of a transfer in which its calls end by themselves."""
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
    """Return what gives a model's weights; keep: as they are now, copied to the CPU. Shards are gathered now, too."""
    seed = int(version.rpartition("-")[2])
    if not keep and not model.sharded:
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
        if ranks.place() == 0:
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

    def __init__(self, version: str, tensors: Callable[[], Iterable[Named]], backend: str, device: Any) -> None:
        """Device: from which the backend sends, wherever the weights are kept until then."""
        super().__init__(version, tensors)
        self.backend, self.device = backend, device

    def deliver(self, server: Connection, limit: float) -> None:
        workers = server.get("/get_world_size", limit=limit)["world_size"]
        os.environ.setdefault(*ranks.LOOPBACK)
        listening = socket.create_server(("127.0.0.1", 0))  # the store would listen on all interfaces
        address, port = listening.getsockname()
        info = {"address": address, "port": port, "size": workers + 1, "seconds": limit}
        wait = timedelta(seconds=limit)
        store = distributed.TCPStore(
            address, port, workers + 1, True, wait, wait_for_workers=False, master_listen_fd=listening.detach()
        )
        group, _ = _both(
            lambda: self._group(distributed.PrefixStore("weights", store), workers + 1, wait),
            lambda: server.call("/init_weight_transfer_engine", {"init_info": info}, limit=limit),
            limit,
        )
        update = {"update_info": self.described()}

        def send() -> None:
            _both(lambda: self._broadcast(group), lambda: server.call("/update_weights", update, limit=limit), limit)

        in_phases(server, self.version, send, limit)
        server.call("/shutdown_weight_transfer_engine", limit=limit)

    def _group(self, store: Any, size: int, wait: timedelta) -> Any:
        if self.backend == "gloo":
            return distributed.ProcessGroupGloo(store, 0, size, wait)
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = wait
        return distributed.ProcessGroupNCCL(store, 0, size, options)

    def _broadcast(self, group: Any) -> None:
        for _name, tensor in self._tensors():
            group.broadcast(tensor.to(self.device), 0).wait()

    def described(self) -> dict[str, list[Any]]:
        """Return names, types and shapes of what is sent."""
        held: dict[str, list[Any]] = {"names": [], "dtypes": [], "shapes": []}
        for name, tensor in self._tensors():
            held["names"].append(name)
            held["dtypes"].append(str(tensor.dtype).removeprefix("torch."))
            held["shapes"].append(list(tensor.shape))
        return held


def _both(ours: Callable[[], Any], theirs: Callable[[], Any], limit: float) -> tuple[Any, Any]:
    """Return what two calls return that wait for each other. Where one fails the other is not waited for: it ends with the
    server, or at its own limit.
    """
    results: dict[int, Any] = {}
    problems: list[BaseException] = []

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            results[place] = call()
        except RuntimeError as error:  # of the process group: the other side is gone, or does not come
            problems.append(ServerGone(f"the transfer broke off: {str(error).splitlines()[0][:300]}"))
        except BaseException as error:
            problems.append(error)

    threads = [
        threading.Thread(target=run, args=each, name="transfer", daemon=True) for each in enumerate((ours, theirs))
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + limit + GRACE
    while len(results) < len(threads):
        if problems:
            raise problems[0]
        stops.point()
        if time.monotonic() > until:
            raise ServerGone(f"the transfer did not end within {limit:g} s")
        threads[0 if threads[0].is_alive() else 1].join(POLL)
    return results[0], results[1]
