"""A sandboxed process that runs calls, and that is replaced if necessary."""

from __future__ import annotations

import atexit
import os
import threading

from fgrl.base import stops
from fgrl.base.errors import Unavailable
from fgrl.feedback.sandbox.calls import Call, Outcome, line
from fgrl.feedback.sandbox.limits import SandboxSpec
from fgrl.feedback.sandbox.strength import refuse_unless, wall_of
from fgrl.feedback.sandbox.walls import Wall, installed_files
from fgrl.feedback.sandbox.worker import LARGEST_REQUEST, Gone, Worker


class Sandbox:
    """A running process behind the strongest wall of this machine.

    Calls run one after the other, each in its own fork, so a call sees nothing of the calls before it. They share the
    interpreter as it started (copied on write), read-only libraries and the machine's time. A call that touched its
    folder, or killed its process, costs a new process; others a few milliseconds. Threads take turns.

    prelude: fgrl's own source that every call starts with. It runs once, before the first call. Raises `Unavailable` if
    this machine's sandbox is weaker than required, or packages are missing: then no code is run at all.
    """

    def __init__(self, spec: SandboxSpec | None = None, wall: Wall | None = None, prelude: str = "") -> None:
        self.spec, self.prelude = spec or SandboxSpec(), prelude
        installed_files(self.spec.packages)
        self.wall: Wall = wall_of(refuse_unless(self.spec.require)) if wall is None else wall
        self._worker: Worker | None = None
        self._turn = threading.Lock()

    def run(self, call: Call) -> Outcome:
        """Run one call. It never raises because of what the code does. It raises ValueError for arguments that are not
        JSON, and `Unavailable` if the sandbox itself cannot be started.
        """
        stops.point()
        request = call.encoded()
        if len(request) > LARGEST_REQUEST:
            raise ValueError(f"source and arguments are {len(request):,} bytes: at most {LARGEST_REQUEST:,} fit")
        with self._turn:
            return self._run(request)

    def _run(self, request: bytes) -> Outcome:
        reason = ""
        # the process may have died for another reason, so a call is made twice before it is blamed
        for _attempt in range(2):
            worker = self._started()
            try:
                outcome, touched = worker.ask(request)
            except Gone as gone:
                reason = str(gone)
                self._close()
                continue
            except BaseException:  # interrupted between call and answer: the next call would read this answer
                self._close()
                raise
            if touched:
                self._close()
            return outcome
        return Outcome("crash", detail=line(reason), lost=True)

    def _started(self) -> Worker:
        if self._worker is not None and not self._worker.alive:
            self._close()
        if self._worker is None:
            try:
                self._worker = Worker(self.wall, self.spec, self.prelude)
            except Gone as gone:
                raise Unavailable(f"the sandbox ({self.wall}) cannot be started: {gone}; see `fgrl doctor`") from None
        return self._worker

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def close(self) -> None:
        """End the process. A later call starts another one."""
        with self._turn:
            self._close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[tuple[int, str, str, str], Sandbox] = {}


def shared(spec: SandboxSpec | None = None, prelude: str = "") -> Sandbox:
    """Return one sandbox for all callers with the same limits and prelude: thousands of checkers share one process.

    A forked process gets its own sandbox. Raises `Unavailable` as `Sandbox` does.
    """
    spec = spec or SandboxSpec()
    wall = wall_of(refuse_unless(spec.require))
    key = (os.getpid(), wall, spec.model_dump_json(exclude={"require"}), prelude)
    if key not in _shared:
        _shared[key] = Sandbox(spec, wall, prelude)
    return _shared[key]


@atexit.register
def _close_all() -> None:
    for (process, *_), sandbox in _shared.items():
        if process == os.getpid():
            sandbox.close()
