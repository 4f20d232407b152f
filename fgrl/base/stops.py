"""Requests from outside to end a run: to stop, to leave at the next saved state, or to end with a parent process.

`ask`, a signal or the loss of another rank requests a stop. The run then stops at its next `point` with a
`KeyboardInterrupt`. Every forward pass of a language model begins with a `point`, so a run stops between two decoding
steps or micro-batches.
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
"""Environment variable of a process that must end together with its parent: the process id of the parent."""
LEAVE = "FGRL_LEAVE"
"""Environment variable with the path of a file. Once the file exists, a run ends as soon as its work is saved: a
training after its round, with a checkpoint.
"""
PR_SET_PDEATHSIG = 1
SAFE_PATH, OURS = "PYTHONSAFEPATH", "fgrl"
"""Variable and value that keep the working folder off the import path of such a process. Otherwise a file `token.py`
there would replace Python's own module.
"""
POLL = 1.0
"""Seconds between two checks of the parent, on systems whose kernel does not report its end."""

_asked: set[int] = set()
"""Threads whose run has been asked to stop."""
_tied: list[int] = []
"""The parent with which this process ends."""


def ask(thread: int) -> None:
    """Ask the run in this thread to stop."""
    _asked.add(thread)


def forget(thread: int) -> None:
    """Clear the request to stop when a run begins or ends in this thread."""
    _asked.discard(thread)


def asked(thread: int) -> bool:
    """Return True if the run in this thread has been asked to stop."""
    return thread in _asked


def is_to_leave() -> bool:
    """Return True if a run must end as soon as its work is saved (`LEAVE`)."""
    return Path(os.environ[LEAVE]).exists() if LEAVE in os.environ else False


def point() -> None:
    """Raise `KeyboardInterrupt` if the run in this thread has been asked to stop. All finished work is already on the
    disk.
    """
    if threading.get_ident() in _asked:
        raise KeyboardInterrupt


# -- a process that does not outlive its parent --------------------------------------------------------------------------


@contextmanager
def children_end_with_us(environment: MutableMapping[str, str]) -> Iterator[None]:
    """End the fgrl processes that are started with `environment` inside the block when this process ends, for whatever
    reason. They do not import from the working folder.
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
    """Kill this process when its parent has ended, if `children_end_with_us` started it. Must run first in every
    process.
    """
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
    """Kill the parent of this process, and thereby this process. Does nothing without such a parent."""
    for parent in _tied:
        if os.getppid() == parent:
            os.kill(parent, signal.SIGKILL)


def has_parent() -> bool:
    """Return True if this process ends together with its parent."""
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
