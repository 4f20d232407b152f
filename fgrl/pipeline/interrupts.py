"""Ctrl-C: the first asks the stage to save and leave, the second aborts. SIGTERM asks like the first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from fgrl.errors import Aborted


class Interrupts:
    """`with Interrupts(say) as interrupts:` then `interrupts()` returns whether the run was asked to stop."""

    def __init__(self, say: Callable[[str], None], *, deaf: bool = False) -> None:
        self.say = say
        self.deaf = deaf
        """Workers of a distributed stage do not listen: rank 0 decides for all."""
        self.asked = False
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.deaf and number == signal.SIGINT:
            return
        if self.asked:
            raise Aborted("aborted")
        self.asked = True
        self.say("stopping at the next safe point; Ctrl-C again aborts at once")
