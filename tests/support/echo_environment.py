"""An environment as a person writes it: a word to find, with a reward for each turn."""

from __future__ import annotations

from typing import Any

from fgrl import Environment, Episode, Sample, register


class Echo(Episode):
    """Counts letters of what it is told."""

    def __init__(self, seed: int, turns: int) -> None:
        self.letter, self.left = "aeiou"[seed % 5], turns
        self.prompt = f"Write many {self.letter}"

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        found = text.count(self.letter)
        return f"{found} of them", min(found, 3) / 3, self.left == 0 or found > 2, False, {"found": found}


@register("echo")
class EchoEnvironment(Environment):
    """A letter to write."""

    turns: int = 3
    """How many turns there are."""

    def begin(self, sample: Sample, seed: int) -> Episode:
        return Echo(seed, self.turns)
