"""Runs calls in a sandboxed process, which is replaced when necessary."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from fgrl.errors import Unavailable
from fgrl.sandbox.calls import Call, Kind, Outcome, line, parse
from fgrl.sandbox.limits import Limits
from fgrl.sandbox.strength import refuse_unless, wall_of
from fgrl.sandbox.walls import Wall
from fgrl.sandbox.worker import LARGEST_REQUEST, Gone, Worker

EXCEEDED: dict[str, tuple[Kind, str]] = {
    "timeout": ("timeout", "it took longer than {seconds:g} s"),
    "output": ("output", "it printed more than {output_kb} KB"),
    "result": ("result", "it returned more than {result_kb} KB of JSON"),
    "files": ("files", "it created too many files"),
}


class Sandbox:
    """A running process behind the strongest wall of this machine.

    Calls are made one after the other, each in its own fork: it sees nothing of the calls before it. They share the
    interpreter as it started (copied on write), read-only libraries and the machine's time. A call that touched its
    folder, or killed its process, costs a new process; others a few milliseconds. Threads take turns.

    Raises `Unavailable` if this machine has less than `require`: then no code is run at all.
    """

    def __init__(
        self, limits: Limits | None = None, require: Literal["strong", "weak"] = "strong", wall: Wall | None = None
    ) -> None:
        if wall is None:
            wall = wall_of(refuse_unless(require))
        self.wall: Wall = wall
        self.limits = limits or Limits()
        self._worker: Worker | None = None
        self._turn = threading.Lock()

    def run(self, call: Call) -> Outcome:
        """Make one call. Never raises for what the code does; raises ValueError for arguments that are not JSON, and
        `Unavailable` if the sandbox itself cannot be started."""
        request = call.encoded()
        if len(request) > LARGEST_REQUEST:
            raise ValueError(f"source and arguments are {len(request):,} bytes: at most {LARGEST_REQUEST:,} fit")
        with self._turn:
            return self._run(request)

    def run_all(self, calls: Iterable[Call]) -> list[Outcome]:
        """Make calls in order."""
        return [self.run(call) for call in calls]

    def _run(self, request: bytes) -> Outcome:
        reason = ""
        # the process may have died for another reason, so a call is made twice before it is blamed
        for _attempt in range(2):
            worker = self._started()
            try:
                answer = worker.ask(request)
            except Gone as gone:
                reason = str(gone)
                self._close()
                continue
            except BaseException:  # interrupted between call and answer: the next call would read this answer
                self._close()
                raise
            if answer["touched"]:
                self._close()
            return self._outcome(answer)
        return Outcome("crash", detail=line(reason))

    def _outcome(self, answer: Mapping[str, Any]) -> Outcome:
        measured = {"printed": answer["printed"], "seconds": float(answer["seconds"])}
        ended = answer["ended"]
        if ended in EXCEEDED:
            kind, reason = EXCEEDED[ended]
            return Outcome(kind, detail=reason.format(**self.limits.model_dump()), **measured)
        if ended != "exit" or not answer["reply"]:
            return Outcome("crash", detail=line(f"it ended without an answer ({ended})"), **measured)
        kind, value, detail = parse(answer["reply"])
        return Outcome(kind, value, detail, **measured)

    def _started(self) -> Worker:
        if self._worker is not None and not self._worker.alive:
            self._close()
        if self._worker is None:
            try:
                self._worker = Worker(self.wall, self.limits)
            except Gone as gone:
                raise Unavailable(f"the sandbox ({self.wall}) cannot be started: {gone}; see `fgrl doctor`") from None
        return self._worker

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def close(self) -> None:
        """End its process. A later call starts another."""
        with self._turn:
            self._close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[tuple[int, str, str], Sandbox] = {}


def shared(limits: Limits | None = None, require: Literal["strong", "weak"] = "strong") -> Sandbox:
    """One sandbox for all callers with the same limits: thousands of checkers need one process, not thousands.

    A forked process gets its own. Raises `Unavailable` as `Sandbox` does.
    """
    limits = limits or Limits()
    wall = wall_of(refuse_unless(require))
    key = (os.getpid(), wall, limits.model_dump_json())
    if key not in _shared:
        _shared[key] = Sandbox(limits, require, wall)
    return _shared[key]


def run_code(
    source: str,
    function: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    require: Literal["strong", "weak"] = "strong",
) -> Outcome:
    """Run source code and call a function in it, in the shared sandbox."""
    return shared(limits, require).run(Call(source, function, args, kwargs or {}))


@atexit.register
def _close_all() -> None:
    for (process, *_), sandbox in _shared.items():
        if process == os.getpid():
            sandbox.close()
