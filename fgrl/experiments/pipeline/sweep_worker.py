"""Processes that run points of a sweep, one after the other, and stay loaded.

A worker gets one task a line (JSON) and answers each with one line. Its number of threads is that of the sweep, and it
sees only the devices that are its share. It ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fgrl.base import native, stops
from fgrl.base.console import Console
from fgrl.base.errors import FAILED, INTERRUPTED, FgrlError
from fgrl.experiments.pipeline.execution import execute
from fgrl.experiments.pipeline.planning import Options, SweptPoint
from fgrl.experiments.pipeline.sweep_points import load_point

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Task:
    """A point, or stages that several points share."""

    recipe: str
    overrides: list[str]
    runs: str
    options: dict[str, Any]
    """The fields of `Options`, without `swept`."""
    swept: dict[str, Any]
    """The fields of `SweptPoint`."""
    machines: str | None = None


@dataclass(frozen=True)
class Reply:
    """How a task went."""

    exit: int
    error: str = ""
    folder: str = ""
    """Folder of the run; empty where there is none."""
    seconds: float | None = None


def work(task: Task, console: Console) -> Reply:
    """Run a task in this process. Errors end in the reply."""
    try:
        loaded = load_point(task.recipe, task.overrides, task.machines)
        options = Options(**task.options, arguments=task.overrides, swept=SweptPoint(**task.swept))
        summary = execute(loaded, Path(task.runs), options, console)
    except FgrlError as error:
        console.alert(error.at_terminal())
        return Reply(error.exit_code, error.explanation())
    except KeyboardInterrupt:
        return Reply(INTERRUPTED, "interrupted")
    except Exception as error:
        console.alert(traceback.format_exc().rstrip())
        return Reply(FAILED, f"{type(error).__name__}: {error}")
    code = FAILED if summary.exit is None else summary.exit
    seconds = None if summary.nothing_to_do else summary.seconds
    return Reply(code, summary.error, "" if summary.folder is None else str(summary.folder), seconds)


def serve() -> None:
    """Answer tasks until there are no more."""
    stops.end_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints belongs to the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # between two tasks there is nothing to stop
    for line in sys.stdin:
        reply = work(Task(**json.loads(line)), Console(stream=sys.stderr))
        replies.write(json.dumps(asdict(reply)) + "\n")
        replies.flush()


class Worker:
    """One of these processes, seen from the process that hands out the tasks."""

    def __init__(
        self, replies: queue.Queue[tuple[Worker, Reply]], threads: int, log: Path, devices: str | None
    ) -> None:
        """devices: those that it may use; None: as this process sees them."""
        self.log = log
        self._replies = replies
        self._environment = {**os.environ, **native.inherited(), **dict.fromkeys(THREADS, str(threads))}
        if devices is not None:
            self._environment[DEVICES] = devices
        self._process: subprocess.Popen[str] | None = None
        self._works = False

    def give(self, task: Task) -> None:
        """Hand over a task; the process is started where there is none."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._works = True
        try:
            self._process.stdin.write(json.dumps(asdict(task)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, as its reader reports

    def ask_to_stop(self) -> None:
        """Ask the task to stop at its next step, as Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self, *, at_once: bool = False) -> None:
        """End the process; at_once: whatever it does."""
        if self._process is None:
            return
        if at_once and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        elif self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log, stops.children_end_with_us(self._environment):
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from fgrl.experiments.pipeline.sweep_worker import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches it once, through us
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._works = False
            self._replies.put((self, Reply(**json.loads(line))))
        code = process.wait()
        if self._works:
            how = f"signal {-code} has ended it" if code < 0 else f"it ended with {code}"
            memory = "; the machine may have been out of memory" if code == -signal.SIGKILL else ""
            error = f"the process of this point was lost: {how}{memory} (see {self.log.name})"
            self._replies.put((self, Reply(max(code, FAILED), error)))


def shares(devices: Sequence[str], jobs: int) -> list[str | None]:
    """Return the devices of each of `jobs` workers: a share each, or one for several workers where there are fewer; None
    where there are none to share out.
    """
    if jobs < 2 or not devices:
        return [None] * jobs
    if len(devices) < jobs:
        return [devices[place % len(devices)] for place in range(jobs)]
    each = len(devices) // jobs
    return [",".join(devices[place * each : (place + 1) * each]) for place in range(jobs)]
