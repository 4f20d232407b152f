"""Judges, which decide criteria that no program can check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from fgrl.kinds.asker import Asker
from fgrl.registry import kind
from fgrl.types import Criterion, Sample


@kind("judge")
class Judge(Asker, ABC):
    """Judge of the criteria that no program can check."""

    @abstractmethod
    def decide(self, cases: Sequence[tuple[Sample, str, Criterion]]) -> list[bool | None]:
        """Return for each case whether the response satisfies the criterion; None if the judgement failed, never a
        guess.
        """
