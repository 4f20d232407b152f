"""Processes (ranks) of a stage on several devices: how they connect, and how they react to the loss of another rank.

`fgrl run` starts them by torchrun's agent (`fgrl.training.agent`), which ends all ranks when one has failed.
Alternatively `srun` or `torchrun` has started them, possibly on several nodes (`fgrl.training.agent_store`). They are
connected during the whole stage. No agreement is needed before a stop: each rank stops at its next point, or when a
collective operation misses another rank. A checkpoint gets its name when it is complete, and the next run continues
from it.

- A rank that has ended is named by its exit code or signal, which the agent knows.
- A rank that does not join a collective operation is named after the limit of the process group (`train.wait_limit`): it is the
  rank that did not record in the stage's folder that it waited.
- Ranks end with the agent, and the agent with `fgrl run`, however these end (`fgrl.base.stops`).
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from fgrl.base import lazy, ranks, stops
from fgrl.base.errors import DONE, INTERRUPTED, RankLost
from fgrl.training import agent_store
from fgrl.training.agent_store import NEXT_STEP

c10d = lazy.load("torch.distributed.distributed_c10d")
torch = lazy.load("torch")

POLL = 0.1
"""Seconds between two checks for files of other ranks in the stage's folder."""
SETTLE = 3.0
"""Seconds after a failed collective operation in which other ranks record that they waited, or the agent asks this rank
to stop, because another has ended.
"""
WAIT_LIMIT = timedelta(hours=4)
"""Limit for waiting for other ranks, until a training sets its own."""
WAITED = "waited-rank-{}"
"""Name of the file by which a rank records that it waited."""
FOLLOWED = 131
"""Exit code of a rank that ended because another rank was lost. `fgrl run` reports the reason."""
OF_LIMIT = re.compile("timed ?out|timeout", re.IGNORECASE)


def is_of_connections(error: BaseException) -> bool:
    """Return True if a collective operation failed because another process has ended, or did not join."""
    return isinstance(error, RuntimeError) and (
        type(error).__name__.startswith("Dist") or "gloo" in str(error) or "NCCL" in str(error)
    )


def limit_waits(seconds: float) -> None:
    """Apply the limit of collective operations to every existing process group, of whichever library."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for group in list(c10d._world.pg_map):
            c10d._set_pg_timeout(timedelta(seconds=seconds), group)


# -- in a rank -----------------------------------------------------------------------------------------------------------


def called(folder: Path, is_done: Callable[[], bool]) -> bool:
    """Wait in a rank above 0 until rank 0 starts the stage. Return False if it does not, because the stage is finished."""
    place = _meeting_place(folder)
    while not is_done():
        if agent_store.has_begun() if place is None else place.exists():
            return True
        stops.point()
        time.sleep(POLL)
    return False


@contextmanager
def connected(run: Any) -> Iterator[None]:
    """Run a stage inside the context. If a launcher has started several processes for it, they have a process group
    there, and `RankLost` replaces an error that follows from the end of another process.
    """
    world = ranks.started()
    if world in (None, 1):
        yield
        return
    place = _meeting_place(run.dir)
    if place is not None and run.rank == 0:
        for left in place.parent.glob("ranks-*"):  # of attempts that were killed
            left.unlink()
    if ranks.nodes() == 1:
        os.environ.setdefault(*ranks.LOOPBACK)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
    try:
        how = (
            {"store": agent_store.gathered(run, world)} if place is None else {"init_method": place.absolute().as_uri()}
        )
        join(run.device, rank=run.rank, world_size=world, **how)
        yield
    except BaseException as error:
        if place is None and isinstance(error, KeyboardInterrupt):
            agent_store.say(run.rank, agent_store.STOPPED)
        if not is_of_connections(error):
            raise
        raise _cause(error, run, world, outside=place is None) from error
    if place is not None and run.rank == 0:
        place.unlink(missing_ok=True)


def join(device: Any, **how: Any) -> None:
    """Create the process group of all ranks, with the arguments `how` of torch."""
    on_gpu = device.type == "cuda"
    torch.distributed.init_process_group(
        "nccl" if on_gpu else "gloo", timeout=WAIT_LIMIT, device_id=device if on_gpu else None, **how
    )
    if on_gpu:
        atexit.register(lambda: torch.distributed.is_initialized() and torch.distributed.destroy_process_group())


def _meeting_place(folder: Path) -> Path | None:
    """Return the file by which ranks find each other; None if torchrun was started by another program and has a store
    for them.
    """
    return folder / f"ranks-{os.environ[ranks.STORE]}" if ranks.STORE in os.environ else None


def _cause(error: BaseException, run: Any, world: int, *, outside: bool) -> BaseException:
    """Return the error for this rank, which has lost another rank. outside: True if torchrun was started by another
    program.
    """
    at_limit = OF_LIMIT.search(str(error)) is not None
    if outside:
        return agent_store.cause(run.rank, world, agent_store.AT_LIMIT if at_limit else agent_store.MISSED)
    until = time.monotonic() + SETTLE
    while time.monotonic() < until:
        if stops.asked(threading.get_ident()):
            return KeyboardInterrupt()
        if at_limit or words(run.dir):
            (run.dir / WAITED.format(run.rank)).touch()
        time.sleep(POLL)
    if not words(run.dir):
        return RankLost(f"a connection between the ranks has ended: {NEXT_STEP}")
    stops.kill_parent()  # the agent, and all ranks with it, also one that hangs
    return hung(run.dir, world)


def words(folder: Path) -> set[int]:
    """Return the ranks that have waited in vain."""
    return {int(word.name.rpartition("-")[2]) for word in folder.glob(WAITED.format("*"))}


# -- in whoever tells of it ----------------------------------------------------------------------------------------------


def forget_waits(folder: Path) -> None:
    """Delete the files that ranks of an earlier attempt have left."""
    for left in folder.glob(WAITED.format("*")):
        left.unlink()


def lost(codes: Mapping[int, int], folder: Path, world: int) -> RankLost:
    """Return the error that names the lost rank. codes: exit codes of ranks, in the order in which the agent saw them;
    negative for a signal.
    """
    if words(folder):
        return hung(folder, world)
    for rank, code in codes.items():
        if code not in (DONE, INTERRUPTED, FOLLOWED, -signal.SIGTERM):
            return ended(f"rank {rank}", code)
    return RankLost(f"a connection between the ranks has ended: {NEXT_STEP}")


def ended(who: str, code: int) -> RankLost:
    """Return the error for a process that has ended by itself, or was killed."""
    if code >= 0:
        how = f"ended with exit code {code}"
    else:
        how = f"was ended by {signal.Signals(-code).name}"
        how += {
            signal.SIGKILL: ", as the system does when memory runs out",
            signal.SIGABRT: ", as NCCL does when a collective operation reaches its limit (train.wait_limit)",
        }.get(signal.Signals(-code), "")
    return RankLost(f"{who} {how}: {NEXT_STEP}")


def hung(folder: Path, world: int) -> RankLost:
    """Return the error for ranks that have waited in vain, which names the ranks without a record of waiting."""
    missing = [rank for rank in range(world) if rank not in words(folder)]
    which = f"rank {missing[0]}" if len(missing) == 1 else f"one of the ranks {', '.join(map(str, missing))}"
    return agent_store.hung(which)
