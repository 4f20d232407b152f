"""Something that may take all memory or never end, tried in a copy of this process that has limits."""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

MEMORY, SECONDS = 512 * 2**20, 3
"""Bytes that a trial may take beyond those of this process, and seconds of computing."""
PATIENCE = 20
"""A trial ends after this many times `SECONDS`, whether it computes or waits: other processes may hold the cores."""


def tried(trial: Callable[[], str]) -> str:
    """Return the answer of `trial`, called in a fork: what is wrong, or "" where nothing is. What stops it is an
    answer, too.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _try(trial, writing)
    os.close(writing)
    try:
        answer = _until_closed(reading, SECONDS * PATIENCE)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        _child, status = os.waitpid(child, 0)
    if answer is not None and answer[:1] == b"=":
        return answer[1:].decode(errors="replace")
    if answer is None or os.waitstatus_to_exitcode(status) == -signal.SIGXCPU:
        return f"it takes more than {SECONDS} s"
    return f"it takes more than {MEMORY / 2**20:.0f} MB, or crashes"


def _try(trial: Callable[[], str], writing: int) -> None:
    """Run the fork's side; never returns."""
    faulthandler.disable()
    try:
        _limit()
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)  # a library that aborts says so
        answer = trial()
    except MemoryError:
        os._exit(1)
    except BaseException as error:  # a panic in Rust is no Exception
        answer = f"{type(error).__name__}: {str(error)[:300]}"
    os.write(writing, b"=" + answer.encode(errors="replace")[: select.PIPE_BUF - 1])
    os._exit(0)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (used := Path("/proc/self/statm")).exists():  # Linux; elsewhere only the time is limited
        most = int(used.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU):
        signal.signal(name, signal.SIG_DFL)


def _until_closed(reading: int, seconds: float) -> bytes | None:
    """Return what is written until the other side is closed; None when that takes longer."""
    end = time.monotonic() + seconds
    parts: list[bytes] = []
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reading, select.PIPE_BUF)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None
