"""Rows and criteria that were left out, by reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Omissions:
    """What was left out, by reason."""

    counts: Counter[str] = field(default_factory=Counter)
    first_misfit: str = ""
    """The first row that does not fit, for messages that end with it; empty when all fit."""

    def add(self, reason: str) -> None:
        self.counts[reason] += 1

    def add_misfit(self, misfit: str) -> None:
        """misfit: the row in words."""
        self.counts["that do not fit"] += 1
        self.first_misfit = self.first_misfit or f"; the first that does not fit: {misfit}"

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())
