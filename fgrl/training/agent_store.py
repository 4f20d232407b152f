"""Ranks that torchrun has started, on one machine or on several. They meet at the store of its agent, which is on the
first node, and record there how they end. So each of them can name a rank that recorded nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from fgrl.base import lazy, stops
from fgrl.base.errors import WRONG_REQUEST, RankLost, UsageError

torch = lazy.load("torch")

POLL = 0.1
"""Seconds between two checks of the store."""
COME = 600.0
"""Maximum seconds until all ranks have joined a stage that rank 0 has started."""
SEEN = 60.0
"""Maximum seconds until a folder that another node has created is visible on a network disk."""
SETTLE = 3.0
"""Seconds after a failed collective operation in which the other ranks record that they have noticed it, too."""
ANSWER = 15.0
"""Seconds in which the store has to answer, after which the first node counts as lost."""
NEXT_STEP = "run the same command to continue from the last checkpoint"
BEGUN, HOST, ENDING = "begun", "host/{}", "ending/{}"
"""Keys in the store: the folder of the stage, the host of a rank, and how a rank has ended."""
STOPPED, AT_LIMIT, MISSED = b"stopped", b"at the limit", b"missed another"
"""Ways in which a rank ends: it was asked to stop, it has waited for `train.wait_limit`, or it noticed that a
connection has ended.
"""


@functools.cache
def _store() -> Any:
    store, *_place = next(torch.distributed.rendezvous("env://", timeout=timedelta(seconds=COME)))
    return torch.distributed.PrefixStore("fgrl", store)


def has_begun() -> bool:
    """Return True if rank 0 has started the stage."""
    return bool(_store().check([BEGUN]))


def gathered(run: Any, world: int) -> Any:
    """Wait until all ranks have joined, each with the folder of rank 0. Return a store for the process group."""
    store = _store()
    if run.rank == 0:
        store.set(BEGUN, run.dir.name)
    fits = store.get(BEGUN).decode() == run.dir.name and _appears(run.dir)
    store.set(HOST.format(run.rank), f"{'' if fits else '!'}{socket.gethostname()}")
    until = time.monotonic() + COME
    while not store.check([HOST.format(rank) for rank in range(world)]):
        stops.point()
        if time.monotonic() > until:
            late = [rank for rank in range(world) if not store.check([HOST.format(rank)])]
            raise RankLost(f"{_who(late)} did not come to the stage within {COME:.0f} seconds: {NEXT_STEP}")
        time.sleep(POLL)
    if not fits and run.rank > 0:  # rank 0 says it
        raise SystemExit(WRONG_REQUEST)
    others = [host[1:] for rank in range(world) if (host := _host(rank)).startswith("!")]
    if others:
        raise UsageError(
            f"on {others[0]} the recipe, its files or the installed packages are not those of {_host(0)}, or {run.dir} is not there: every "
            "node needs the same, and a folder of runs (--runs) on a disk that all nodes share"
        )
    return torch.distributed.PrefixStore("torch", store)


def say(rank: int, how: bytes) -> None:
    """Record how this rank ends, if the first node is reachable."""
    with contextlib.suppress(RuntimeError):
        _store().set(ENDING.format(rank), how)


def cause(rank: int, world: int, how: bytes) -> BaseException:
    """Return the error for this rank, which has lost another rank."""
    found: list[BaseException] = []

    def ask() -> None:
        with contextlib.suppress(RuntimeError):  # of a store that has ended
            found.append(_cause(rank, world, how))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER)
    first = os.environ["MASTER_ADDR"]
    return next(iter(found), RankLost(f"the first node, {first}, has ended or cannot be reached: {NEXT_STEP}"))


def _cause(rank: int, world: int, how: bytes) -> BaseException:
    store, endings = _store(), [ENDING.format(each) for each in range(world)]
    say(rank, how)
    until = time.monotonic() + SETTLE
    while not store.check(endings) and time.monotonic() < until:
        time.sleep(POLL)
    said = {each: store.get(key) for each, key in enumerate(endings) if store.check([key])}
    silent = [each for each in range(world) if each not in said]
    if not silent:
        stopped = STOPPED in said.values()
        return KeyboardInterrupt() if stopped else RankLost(f"a connection between the ranks has ended: {NEXT_STEP}")
    if AT_LIMIT not in said.values():
        return RankLost(f"{_who(silent)} ended, or cannot be reached; the output of its node says more: {NEXT_STEP}")
    return hung(_who(silent))


def hung(who: str) -> RankLost:
    """Return the error for ranks that have waited in vain for others."""
    return RankLost(
        f"{who} did not come to a collective operation within train.wait_limit: it hangs, or needs longer; {NEXT_STEP}, with a higher limit if "
        "it only needs longer"
    )


def _who(ranks: list[int]) -> str:
    """Return the names of ranks and their nodes."""
    at = [(_host(rank) or "a node that has not come", rank) for rank in ranks]
    nodes = [(host, [str(rank) for _host, rank in group]) for host, group in groupby(at, key=lambda each: each[0])]
    return " and ".join(f"rank{'s' * (len(own) > 1)} {', '.join(own)} on {host}" for host, own in nodes)


def _host(rank: int) -> str:
    return _store().get(HOST.format(rank)).decode() if _store().check([HOST.format(rank)]) else ""


def _appears(folder: Path) -> bool:
    until = time.monotonic() + SEEN
    while not folder.exists() and time.monotonic() < until:
        time.sleep(POLL)
    return folder.exists()
