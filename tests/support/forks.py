"""Copies of this process, which has loaded everything: hundreds of runs of the command line in the time of a few."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fgrl import cli
from fgrl.training import launching


def forked(work: Callable[[], Any]) -> int:
    """Start a copy of this process that does `work` and ends with status 0, or 1 after an error. Return its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    status = 1
    try:
        torch.set_num_threads(1)  # a copy has no other threads, and a pool of OpenMP's would wait for them for ever
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def in_two_processes(work: Callable[[int], Any]) -> None:
    """Call `work` with the rank in two copies of this process that are connected as the processes of a stage are."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def connected(rank: int) -> None:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "NODE_RANK": "0"}
        os.environ |= place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        launching.join(torch.device("cpu"), init_method="env://")
        work(rank)

    processes = [forked(lambda rank=rank: connected(rank)) for rank in (0, 1)]  # type: ignore[misc]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0]


def command(folder: Path, *arguments: str, limit: Callable[[], Any] = lambda: None) -> tuple[int, str]:
    """Run `fgrl` with these arguments in a fork that works in `folder`. Return its exit code and what it printed.

    limit: called in the fork before the command, to bound its memory or time. Negative codes are signals.
    """
    said = folder / "said"

    def work() -> None:
        os.chdir(folder)
        file = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # pytest has replaced them
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", buffering=1, encoding="utf-8", closefd=False) for number in (1, 2)
        )
        limit()
        try:
            cli.main(list(arguments))
        except SystemExit as end:
            # without Python's own end, which a function under test may have broken
            os._exit(int(end.code or 0))

    _process, status = os.waitpid(forked(work), 0)
    return os.waitstatus_to_exitcode(status), said.read_text(encoding="utf-8", errors="replace")
