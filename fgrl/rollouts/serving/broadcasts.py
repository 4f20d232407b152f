"""Broadcast of full weights, in buckets, to the workers of all servers at once."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from math import prod
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor, distributed

from fgrl.base import stops
from fgrl.base.errors import Stopped
from fgrl.kinds import ServerGone, ServerRefused
from fgrl.kinds.transfer import failures
from fgrl.rollouts.serving.connection import Connection, is_local
from fgrl.rollouts.serving.parcels import FullParcel, Weights, forget_prefixes

BUCKET = 2**28
"""Minimum number of values in a bucket; 512 MiB in bfloat16."""
PART = 2**22
"""Number of values whose fingerprint is computed at once."""
POLL = 0.02
"""Seconds between two checks of a transfer."""
GRACE = 5.0
"""Seconds after the limit of a transfer in which its calls can end by themselves."""


class Broadcasts:
    """Process group of this process, which has rank 0, and the workers of some servers. It lasts until other servers
    are requested, or until a transfer fails.
    """

    def __init__(self) -> None:
        self.group: Any = None
        self._servers: tuple[str, ...] = ()
        self._store: Any = None

    def join(self, servers: Sequence[Connection], backend: str, limit: float) -> dict[int, str]:
        """Create the group of these servers, if it does not exist. Return the errors, as `beside` does."""
        addresses = tuple(server.address for server in servers)
        if self.group is not None and addresses == self._servers:
            return {}
        self.close()
        workers: list[int] = []
        if failed := failures(
            servers, lambda server: workers.append(server.get("/get_world_size", limit=limit)["world_size"])
        ):
            return dict.fromkeys(range(len(servers)), "") | failed
        size, wait = 1 + sum(workers), timedelta(seconds=limit)
        listening = socket.create_server((reachable(servers), 0))  # the store would listen on all interfaces
        address, port = listening.getsockname()[:2]
        store = distributed.TCPStore(
            address, port, size, True, wait, wait_for_workers=False, master_listen_fd=listening.detach()
        )

        def ours() -> None:
            self.group = _group(backend, distributed.PrefixStore("weights", store), size, address, wait)

        def joining(place: int) -> Callable[[], Any]:
            first = 1 + sum(workers[:place])
            info = {"address": address, "port": port, "size": size, "first": first, "seconds": limit}
            return lambda: servers[place].call("/init_weight_transfer_engine", {"init_info": info}, limit=limit)

        failed = beside(ours, [joining(place) for place in range(len(servers))], limit)
        if not failed:
            self._store, self._servers = store, addresses
        return failed

    def close(self) -> None:
        """Leave the group. Workers that wait in it continue with an error."""
        if self.group is not None:
            self.group.abort()
        self.group, self._store, self._servers = None, None, ()


def _group(backend: str, store: Any, size: int, address: str, wait: timedelta) -> Any:
    if backend == "nccl":
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = wait
        return distributed.ProcessGroupNCCL(store, 0, size, options)
    gloo: Any = distributed.ProcessGroupGloo
    own = gloo._Options()
    own._devices, own._timeout = [gloo.create_device(hostname=address)], wait
    return gloo(store, 0, size, own)


def reachable(servers: Sequence[Connection]) -> str:
    """Return the address of this machine that all of the servers can reach."""
    elsewhere = (server.address for server in servers if not is_local(server.address))
    host = next((urlsplit(address).hostname for address in elsewhere), "127.0.0.1")
    kind, *_, there = socket.getaddrinfo(host, 80, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as way:
        way.connect(there)  # sends nothing: it chooses the way there
        return str(way.getsockname()[0])


class BroadcastParcel(FullParcel):
    """Weights that are broadcast to the workers of all servers."""

    def __init__(self, version: str, sent: Weights, backend: str, device: Any, group: Broadcasts) -> None:
        """Create the parcel. device: device from which the backend sends, wherever the weights are until then."""
        super().__init__(version, sent)
        self.backend, self.device, self.joined = backend, device, group

    def deliver(self, server: Connection, limit: float) -> None:
        for why in self.deliver_to_all([server], limit).values():
            raise ServerGone(why)

    def deliver_to_all(self, servers: Sequence[Connection], limit: float) -> dict[int, str]:
        sums: list[str] = []
        counts = bucketed([prod(shape) for _, shape in self.sent.shapes], BUCKET)
        update = {"update_info": {
            "names": [name for name, _ in self.sent.shapes], "shapes": [shape for _, shape in self.sent.shapes],
            "dtype": self.sent.dtype, "counts": counts,
        }}  # fmt: skip

        def received(server: Connection) -> None:
            server.call("/start_weight_update", limit=limit)
            server.call("/update_weights", update, limit=limit)

        failed = self.joined.join(servers, self.backend, limit) or beside(
            lambda: sums.extend(self.broadcast(self.joined.group, counts)),
            [lambda server=server: received(server) for server in servers],  # type: ignore[misc]
            limit,
        )
        if failed:
            self.joined.close()
            return failed
        return failures(servers, lambda server: self._finish(server, sums, limit))

    def _finish(self, server: Connection, sums: Sequence[str], limit: float) -> None:
        for found in server.rpc("fgrl_received", limit=limit):
            if found != sums:
                raise Stopped(
                    f"the server {server.address} has received other bytes than {self.version} that was sent to it"
                )
        server.call("/finish_weight_update", {"weight_version": self.version}, limit=limit)
        forget_prefixes(server, limit)

    def broadcast(self, group: Any, counts: Sequence[int]) -> Iterator[str]:
        """Send all weights, and yield the fingerprint of each bucket."""
        tensors = iter(self.sent.tensors())
        for count in counts:
            flat = torch.cat([tensor.to(self.device).flatten() for _name, tensor in islice(tensors, count)])
            group.broadcast(flat, 0).wait()
            yield fingerprint(flat)


def bucketed(sizes: Sequence[int], least: int) -> list[int]:
    """Return the number of tensors in each bucket: as few as reach `least` values. sizes: number of values of each
    tensor.
    """
    counts, held = list[int](), least
    for size in sizes:
        if held >= least:
            counts.append(0)
            held = 0
        counts[-1] += 1
        held += size
    return counts


def fingerprint(flat: Tensor) -> str:
    """Return a sum over the bits of all numbers, each multiplied by its place, modulo 2^64. It is computed on the
    tensor's device; a changed number always changes it.
    """
    bits = flat.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[flat.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for start in range(0, len(bits), PART):
        part = bits[start : start + PART].to(torch.int64)
        total += (part * (2 * torch.arange(start, start + len(part), device=flat.device) + 1)).sum()
    return f"{int(total) % 2**64:016x}"


def beside(ours: Callable[[], Any], theirs: Sequence[Callable[[], Any]], limit: float) -> dict[int, str]:
    """Make calls that wait for each other. Return the errors by the place of the call in `theirs`: the reason why that
    server failed, or "" for a server that works and waited for another. After a failure nobody waits for the other
    calls: they end with it, or at their own limit.
    """
    problems: dict[int, BaseException] = {}

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as error:
            problems[place] = error.with_traceback(None)  # whose frames hold the group

    calls = [*theirs, ours]
    threads = [threading.Thread(target=run, args=each, name="transfer", daemon=True) for each in enumerate(calls)]
    for thread in threads:
        thread.start()

    def settled(enough: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not enough() and time.monotonic() < until and (waiting := [each for each in threads if each.is_alive()]):
            stops.point()
            waiting[0].join(POLL)

    last = len(theirs)
    settled(lambda: bool(problems), limit + GRACE)
    if set(problems) == {last}:  # the server that broke it off says so, too
        settled(lambda: len(problems) > 1, GRACE)
    broken = problems.pop(last, None)
    for problem in [broken, *problems.values()]:
        if problem is not None and not isinstance(problem, RuntimeError | ServerGone | ServerRefused):
            raise problem
    guilty: dict[int, Any] = {
        place: each for place, each in problems.items() if isinstance(each, ServerGone)
    } or problems
    if not guilty and broken is not None:
        guilty = dict.fromkeys(range(last), f"the transfer broke off: {str(broken).splitlines()[0][:300]}")
    if not guilty:
        late = [place for place, thread in enumerate(threads[:last]) if thread.is_alive()]
        guilty = dict.fromkeys(late or (range(last) if threads[last].is_alive() else ()), f"no end within {limit:g} s")
    return {place: str(guilty.get(place, "")) for place in range(last)} if guilty else {}
