"""Handling of Ctrl-C: the first one asks the stage to stop at its next step, the second aborts. SIGTERM does the same,
with two exceptions. A second SIGTERM within a second counts as a repetition of the first, because a scheduler sends it
to every process of a job and a parent process passes it on. A process that another process has started is only asked to
stop, however often the signal comes.

Python runs a signal handler between two instructions, so never during a long computation in C (a backward pass, a large
matrix product). Therefore the signal itself wakes a thread. The thread prints the reply at once, whatever the main
thread does, and ends the process when the main thread does not react after the second Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from fgrl.base import stops
from fgrl.base.errors import INTERRUPTED, Aborted

ACKNOWLEDGED = "stopping at the next step: what is finished is kept; Ctrl-C again aborts at once"
SAME = 1.0
"""Seconds after the first signal during which another SIGTERM counts as the same request."""
STUCK = 5.0
"""Seconds that the main thread has to react to the second Ctrl-C before the process is ended."""
_END = b"\0"


class Interrupts:
    """Requests to stop a run. In `with Interrupts(say) as interrupts:`, `interrupts()` is true if the run was asked to
    stop or to abort.
    """

    def __init__(self, say: Callable[[str], None], *, ignores_sigint: bool = False) -> None:
        self.say = say
        self.ignores_sigint = ignores_sigint
        """True for workers of a distributed stage, which ignore Ctrl-C: rank 0 decides for all."""
        self.thread = threading.get_ident()
        """Identifier of the thread whose run is asked to stop."""
        self._first: float | None = None
        """Time at which the handler saw the first signal."""
        self._unanswered = threading.Lock()
        """Lock that the handler or the thread takes when it answers the first signal. It is never released."""
        self._aborting = threading.Event()
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None

    def __call__(self) -> bool:
        return stops.asked(self.thread) or stops.is_to_leave()

    def __enter__(self) -> Interrupts:
        self.thread = threading.get_ident()
        stops.forget(self.thread)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
            if not self.ignores_sigint:
                reader, writer = self._sockets = socket.socketpair()
                writer.setblocking(False)
                self._wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
                self._thread = threading.Thread(target=self._watch, args=(reader,), name="interrupts", daemon=True)
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        stops.forget(self.thread)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._sockets is not None and self._thread is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            self._aborting.set()
            self._sockets[1].send(_END)
            self._thread.join()
            for end in self._sockets:
                end.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal in the main thread, as soon as that runs Python."""
        if self.ignores_sigint and number == signal.SIGINT:
            return
        if self._first is not None and _aborts(number, self._first):
            self._aborting.set()
            raise Aborted("aborted")
        self._first = self._first or time.monotonic()
        stops.ask(self.thread)
        self._acknowledge()

    def _watch(self, reader: socket.socket) -> None:
        """Read signals in the thread: every byte is the number of a signal that arrived."""
        first: float | None = None
        while (byte := reader.recv(1)) not in (b"", _END):
            if byte[0] not in (signal.SIGINT, signal.SIGTERM):
                continue
            stops.ask(self.thread)
            self._acknowledge()
            aborts = first is not None and _aborts(byte[0], first)
            first = first or time.monotonic()
            if aborts and not self._aborting.wait(STUCK):
                self.say(
                    "aborted in the middle of a computation; run the same command to continue from the last checkpoint"
                )
                os._exit(INTERRUPTED)

    def _acknowledge(self) -> None:
        if self._unanswered.acquire(blocking=False):
            self.say(ACKNOWLEDGED)


def _aborts(number: int, first: float) -> bool:
    """Return True if a signal aborts a run that was asked to stop at the time `first`."""
    return number == signal.SIGINT or (not stops.has_parent() and time.monotonic() - first > SAME)
