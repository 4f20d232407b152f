"""How a run ends from outside: it is asked to stop or to leave, or the process that started it is gone.

A run is asked with `ask`, by a signal or where another rank is lost, and stops at its next `point`:
`KeyboardInterrupt`. Every pass of a language model begins with one, so a run stops between two decoding steps or
micro-batches.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

PARENT = "FGRL_PARENT"
"""Set for a process that ends with the one that started it: the process id of that one."""
LEAVE = "FGRL_LEAVE"
"""Names a file. Once it is there, a run ends where it has stored its work: a training after its round, with a checkpoint."""
PR_SET_PDEATHSIG = 1
SAFE_PATH, OURS = "PYTHONSAFEPATH", "fgrl"
"""Keeps the working folder off such a process's path: a `token.py` there would take the place of Python's own."""
POLL = 1.0
"""Seconds between two looks at the parent, where the kernel does not tell of its end."""

_asked: set[int] = set()
"""Threads whose run is to stop."""
_tied: list[int] = []
"""The parent that this process ends with."""


def ask(thread: int) -> None:
    """Ask the run in this thread to stop."""
    _asked.add(thread)


def forget(thread: int) -> None:
    """Begin or end a run in this thread: nothing is asked of it."""
    _asked.discard(thread)


def asked(thread: int) -> bool:
    """Return True if the run in this thread is to stop."""
    return thread in _asked


def is_to_leave() -> bool:
    """Return True if a run is to end where it has stored its work (`LEAVE`)."""
    return Path(os.environ[LEAVE]).exists() if LEAVE in os.environ else False


def point() -> None:
    """Raise `KeyboardInterrupt` if the run in this thread is to stop. Everything that is finished is on the disk
    already.
    """
    if threading.get_ident() in _asked:
        raise KeyboardInterrupt


# -- a process that does not outlive its parent --------------------------------------------------------------------------


@contextmanager
def children_end_with_us(environment: MutableMapping[str, str]) -> Iterator[None]:
    """End processes of fgrl that are started with `environment` inside when this process ends, however it ends. They
    import nothing from the working folder.
    """
    own = {PARENT: str(os.getpid()), SAFE_PATH: OURS}
    before = {name: environment[name] for name in own if name in environment}
    environment.update(own)
    try:
        yield
    finally:
        for name in own:
            environment.pop(name, None)
        environment.update(before)


def end_with_parent() -> None:
    """Run first in every process: one that `children_end_with_us` started is killed when its parent has ended."""
    named = os.environ.pop(PARENT, "")
    if os.environ.get(SAFE_PATH) == OURS:  # not for what this process starts
        del os.environ[SAFE_PATH]
    if not named.isdigit():
        return
    parent = int(named)
    if os.getppid() == parent:
        _tied.append(parent)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        else:
            threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()
        if os.getppid() == parent:
            return
    elif _exists(parent):  # a command that a rank's own code has started through others
        return
    os.kill(os.getpid(), signal.SIGKILL)  # it ended before the kernel was told


def kill_parent() -> None:
    """Kill the process that this one ends with, and so this one; nothing where there is none."""
    for parent in _tied:
        if os.getppid() == parent:
            os.kill(parent, signal.SIGKILL)


def has_parent() -> bool:
    """Return True if this process ends with the one that started it."""
    return bool(_tied)


def _exists(process: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL)
    os.kill(os.getpid(), signal.SIGKILL)
