"""Calls of environments, each in a thread of its own with a time limit: a slow one holds up its own conversation only."""

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
"""Seconds that all calls of a drawing together are waited for before the next batch is drawn without them. Where an
environment answers faster, batches do not depend on its speed.
"""
POLL = 0.1
"""Seconds between two looks at whether the run is to stop."""
_GATE = threading.Lock()
"""Of the calls of this process of which only one may be under way."""


class Steps:
    """Calls that are under way, by the number of their conversation."""

    def __init__(self, *, one_at_a_time: bool = False) -> None:
        """one_at_a_time: the time of a call begins when those before it are done, or have taken too long."""
        self._one_at_a_time = one_at_a_time
        self._inside: set[object] = set()
        """The mark of the call for which the gate is closed."""
        self._done: queue.SimpleQueue[tuple[int, object, Any]] = queue.SimpleQueue()
        self._under_way: dict[int, tuple[object, float, float]] = {}
        """A mark of the call, when it has to be done, and its limit in seconds."""
        self._grace = GRACE

    def call(self, number: int, limit: float, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin a call. limit: seconds."""
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
        """Let the next call in, unless that was done when this one had taken too long."""
        with contextlib.suppress(KeyError):
            self._inside.remove(mark)
            _GATE.release()

    def finished(self, *, wait: bool = False) -> Iterator[tuple[int, Any]]:
        """Yield (number, what it returned or raised) of the calls that are done, `TimeoutError` of those that took too
        long. wait: until one is done; otherwise until all are, as long as there is grace.
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
