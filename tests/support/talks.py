"""Environments for tests."""

from __future__ import annotations

import threading
import time
from typing import Any

from fgrl.kinds import Environment, Episode
from fgrl.types import Sample

BEGUN: list[tuple[str, int]] = []
"""(id of the sample, seed) of every conversation that began."""


class Counting(Episode):
    """Answers "n: how many characters" until `turns` are over; the reward is the turn's number."""

    def __init__(self, turns: int, prompt: str | None, faults: dict[int, Any], slow: float) -> None:
        self.turns, self.prompt, self.faults, self.slow = turns, prompt, faults, slow
        self.texts: list[str] = []

    def step(self, text: str) -> Any:
        self.texts.append(text)
        number = len(self.texts)
        if self.slow:
            time.sleep(self.slow)
        fault = self.faults.get(number)
        if isinstance(fault, BaseException):
            raise fault
        if callable(fault):
            return fault()
        if fault is not None:
            return fault
        return f"{number}: {len(text)} characters", float(number), number == self.turns, False, {"size": len(text)}


class Talk(Environment):
    """A conversation of `turns` turns."""

    turns: int = 3
    """How many."""
    own_prompt: bool = False
    """The prompt has the seed."""
    slow: float = 0.0
    """Seconds of each step of the sample "slow"."""
    faults: dict[int, Any] = {}
    """What happens in a turn, from 1."""

    def begin(self, sample: Sample, seed: int) -> Episode:
        BEGUN.append((sample.id, seed))
        slow = self.slow if sample.id == "slow" else 0.0
        return Counting(
            self.turns, f"Game {seed}" if self.own_prompt else None, self.faults if sample.id != "good" else {}, slow
        )


HANG = threading.Event()
"""Never set: waiting for it does not end."""
