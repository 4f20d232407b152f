"""Calls of environments, each in a separate thread with a time limit: a slow call delays only its own conversation."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fgrl.base import stops

GRACE = 1.0
"""Seconds in which all calls of a drawing are awaited before the next batch is drawn without the late ones. If an
environment answers faster, batches do not depend on its speed.
"""
POLL = 0.1
"""Seconds between two checks whether the run is to stop."""
_GATE = threading.Lock()
"""Lock for calls of this process of which only one may be running."""


class Steps:
    """Running calls, by the number of their conversation."""

    def __init__(self, *, one_at_a_time: bool = False) -> None:
        """Create an empty set of calls. one_at_a_time: the time of a call begins when the calls before it are finished,
        or have taken too long.
        """
        self._one_at_a_time = one_at_a_time
        self._inside: set[object] = set()
        """Marks of the calls that hold the gate."""
        self._done: queue.SimpleQueue[tuple[int, object, Any]] = queue.SimpleQueue()
        self._under_way: dict[int, tuple[object, float, float]] = {}
        """Mark, deadline and limit in seconds of each call."""
        self._grace = GRACE

    def call(self, number: int, limit: float, function: Callable[..., Any], *arguments: Any) -> None:
        """Start a call. limit: seconds."""
        mark = object()
        waiting = math.inf if self._one_at_a_time else 0.0
        self._under_way[number] = mark, time.monotonic() + limit + waiting, limit

        def run() -> None:
            if self._one_at_a_time:
                _GATE.acquire()
                self._inside.add(mark)
                self._under_way[number] = mark, time.monotonic() + limit, limit
            try:
                outcome: Any = function(*arguments)
            except BaseException as raised:  # what a user's code raises ends its own conversation
                outcome = raised
            self._leave(mark)
            self._done.put((number, mark, outcome))

        # a daemon: one that never returns does not keep the process
        threading.Thread(target=run, name=f"environment {number}", daemon=True).start()

    def _leave(self, mark: object) -> None:
        """Let the next call in, unless that was already done because this one had taken too long."""
        with contextlib.suppress(KeyError):
            self._inside.remove(mark)
            _GATE.release()

    def finished(self, *, wait: bool = False) -> Iterator[tuple[int, Any]]:
        """Yield (number, result or raised error) of the finished calls, with `TimeoutError` for calls that took too
        long. wait: wait until one is finished; otherwise until all are, within the grace time.
        """
        while self._under_way:
            stops.point()
            began, patience = time.monotonic(), POLL if wait else min(POLL, self._grace)
            try:
                number, mark, outcome = self._done.get(timeout=patience) if patience > 0 else self._done.get_nowait()
            except queue.Empty:
                late = [number for number, (_, due, _) in self._under_way.items() if due < time.monotonic()]
                for number in late:
                    mark, _due, limit = self._under_way.pop(number)
                    self._leave(mark)
                    yield number, TimeoutError(f"no answer within step_seconds, {limit:g} s")
                wait = wait and not late
            else:
                if number in self._under_way and self._under_way[number][0] is mark:
                    del self._under_way[number]
                    yield number, outcome
                    wait = False
            if not wait:
                self._grace -= time.monotonic() - began
                if self._grace <= 0 and self._done.empty():
                    return
