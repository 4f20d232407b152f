"""The other processes (ranks) of a training on several devices, seen from rank 0, which has started them.

Rank 0 decides for all. When it is asked to stop it ends the others at once, and itself stops at its next point, or
where a collective operation misses them. Nothing has to be agreed: a checkpoint gets its name when it is complete, and
the next run continues from it.

- A rank that has ended is noticed within `POLL`, and named with its exit code or signal.
- A rank that does not come to a collective operation is named after the limit of the process group (`train.wait_limit`): it is the
  one that did not leave word in the stage's folder that it waited.
- Ranks end with rank 0, however that ends (`fgrl.base.stops`), and one that has waited in vain kills it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from fgrl.base import lazy, stops
from fgrl.base.errors import INTERRUPTED, RankLost

c10d = lazy.load("torch.distributed.distributed_c10d")
distributed = lazy.load("torch.distributed")

POLL = 0.2
"""Seconds between two looks at the other ranks."""
SETTLE = 3.0
"""Seconds after a failed collective operation in which the ranks that cause it end, or leave word that they waited,
too.
"""
LEAVE = 8.0
"""Seconds in which rank 0 has to leave after a rank is lost, or a collective operation after the others were ended;
then the process is ended. On a GPU such an operation does not end by itself.
"""
LEAVE_ASKED = 20.0
"""Seconds in which rank 0 has to come to its next pass after it was asked to stop: schedulers often kill after 30."""
WAITED = "waited-rank-{}"
"""The word that a rank leaves."""
NEXT_STEP = "run the same command to continue from the last checkpoint"
OF_LIMIT = re.compile("timed ?out|timeout", re.IGNORECASE)


def is_of_connections(error: BaseException) -> bool:
    """Return True if a collective operation failed because another process has ended, or did not come."""
    return isinstance(error, RuntimeError) and (
        type(error).__name__.startswith("Dist") or "gloo" in str(error) or "NCCL" in str(error)
    )


def limit_waits(seconds: float) -> None:
    """Apply the limit of collective operations to every process group that exists, of whichever library."""
    if distributed.is_available() and distributed.is_initialized():
        for group in list(c10d._world.pg_map):
            c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def forget_waits(folder: Path) -> None:
    """Delete what ranks of an earlier attempt have left."""
    for left in folder.glob(WAITED.format("*")):
        left.unlink()


def lost_to_signal_or_hung(rank: int, code: int, folder: Path) -> RankLost:
    """Why a rank has ended with the exit code `code`, negative for a signal: another one, which waited for it in vain,
    may have killed it.
    """
    if any(folder.glob(WAITED.format("*"))):
        return hung([rank])
    return ended(rank, code)


def ended(rank: int, code: int) -> RankLost:
    """Return a rank has ended by itself, or was killed."""
    if code >= 0:
        how = f"ended with exit code {code}"
    else:
        how = f"was ended by {signal.Signals(-code).name}"
        how += {
            signal.SIGKILL: ", as the system does when memory runs out",
            signal.SIGABRT: ", as NCCL does when a collective operation reaches its limit (train.wait_limit)",
        }.get(signal.Signals(-code), "")
    return RankLost(f"rank {rank} {how}: {NEXT_STEP}")


def hung(ranks: Sequence[int]) -> RankLost:
    """Others have waited in vain for these ranks."""
    which = f"rank {ranks[0]}" if len(ranks) == 1 else f"one of the ranks {', '.join(map(str, ranks))}"
    return RankLost(
        f"{which} did not come to a collective operation within train.wait_limit: it hangs, or needs longer; {NEXT_STEP}, with a "
        "higher limit if it only needs longer"
    )


def _end_here(message: str, code: int) -> NoReturn:
    """End this process, whatever its main thread does."""
    try:
        sys.stderr.write(message + "\n")
        sys.stderr.flush()
    finally:  # also where nobody reads it any more
        os._exit(code)


class Ranks:
    """The processes of ranks 1, 2, ... that this process has started (none: in another rank, or where a launcher
    started all).
    """

    def __init__(
        self, rank: int, world: int, folder: Path, processes: Callable[[], list[subprocess.Popen[bytes]]]
    ) -> None:
        self.rank, self.world, self.folder, self._processes = rank, world, folder, processes
        self.lost: RankLost | None = None
        self._thread = threading.get_ident()
        self._over = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside is the training. Raises `RankLost` instead of an error that follows from the end of another rank."""
        watching = threading.Thread(target=self._watch, name="ranks", daemon=True)
        if self.rank == 0:
            watching.start()
        try:
            yield
        except BaseException as error:
            self._over.set()
            cause = self._cause(error)
            self._kill()
            if cause is None:
                raise
            raise cause from error
        finally:
            self._over.set()

    def _cause(self, error: BaseException) -> BaseException | None:
        """Return what `error` follows from; None where it stands for itself."""
        if self.lost is None and not is_of_connections(error):
            return None
        if self.lost is None and stops.asked(self._thread):
            return KeyboardInterrupt()
        at_limit = OF_LIMIT.search(str(error)) is not None
        if self.rank:
            self._leave(at_limit)
        until = time.monotonic() + SETTLE
        while self.lost is None and time.monotonic() < until:
            all_ended = bool(self._processes()) and all(one.poll() is not None for one in self._processes())
            self.lost = self._ended()
            if all_ended:
                break
            time.sleep(POLL / 4)
        if stops.asked(self._thread) and self.lost is None:
            return KeyboardInterrupt()
        if self.lost is None and (at_limit or self._words()):
            self.lost = hung(self._missing(here=not at_limit))
        return self.lost or RankLost(f"a connection between the ranks has ended: {NEXT_STEP}")

    def _leave(self, at_limit: bool) -> NoReturn:
        """In a rank above 0: the message is left to rank 0 or, where that is not the parent, given here."""
        if at_limit:
            (self.folder / WAITED.format(self.rank)).touch()
        if stops.has_parent():
            time.sleep(LEAVE + SETTLE)  # rank 0 ends this process, if it can
            stops.kill_parent()
        else:
            why = "has waited for another rank longer than train.wait_limit" if at_limit else "was left by another rank"
            _end_here(RankLost(f"rank {self.rank} {why}: {NEXT_STEP}").at_terminal(), RankLost.exit_code)
        os._exit(RankLost.exit_code)

    def _words(self) -> set[int]:
        """Return the ranks that have waited in vain."""
        return {int(word.name.rpartition("-")[2]) for word in self.folder.glob(WAITED.format("*"))}

    def _missing(self, *, here: bool) -> list[int]:
        """Return the ranks that were waited for; `here`: this one, too."""
        words = self._words()
        others = [rank for rank in range(1, self.world) if rank not in words]
        return others if others and not here else [0, *others]

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """End the others when one is lost or a stop is asked for, and this process when its main thread then goes on
        waiting.
        """
        killed: float | None = None
        while not self._over.wait(POLL):
            processes = self._processes()
            if self.lost is None and (lost := self._ended() or self._hangs()) is not None:
                self.lost = lost
                stops.ask(self._thread)
                self._kill()
                killed = time.monotonic()
            elif processes and stops.asked(self._thread) and not stops.is_held(self._thread):
                self._kill()
                killed = killed or time.monotonic()
            patience = LEAVE if self.lost is not None or self._waits() else LEAVE_ASKED
            if killed is not None and time.monotonic() > killed + patience:
                break
        if self._over.is_set():
            return
        if self.lost is None:
            _end_here(f"fgrl: stopped where it waited for another rank: {NEXT_STEP}", INTERRUPTED)
        _end_here(self.lost.at_terminal(), RankLost.exit_code)

    def _ended(self) -> RankLost | None:
        """Return the first rank that has ended badly. One that was asked to stop asks this one."""
        if stops.asked(self._thread):
            return None  # `_kill` has ended it
        codes = [(rank, code) for rank, process in enumerate(self._processes(), 1) if (code := process.poll())]
        if codes and codes[0][1] == INTERRUPTED:
            stops.ask(self._thread)
            return None
        return ended(*codes[0]) if codes else None

    def _hangs(self) -> RankLost | None:
        """Where other ranks have waited in vain, and this one does not notice it: the ranks that they waited for."""
        if not self._processes() or not self._words():
            return None
        time.sleep(SETTLE)  # the others leave word, too
        if self._over.is_set():
            return None
        return hung(self._missing(here=not self._waits()))

    def _waits(self) -> bool:
        """Return True if the main thread is in a collective operation."""
        frame = sys._current_frames().get(self._thread)
        file = "" if frame is None else Path(frame.f_code.co_filename).as_posix()
        return "torch/distributed" in file or "torch/autograd" in file

    def _kill(self) -> None:
        for process in self._processes():
            process.kill()
