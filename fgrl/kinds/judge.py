"""Judges: they decide criteria that no program can check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from fgrl.kinds.asker import Asker
from fgrl.registry import kind
from fgrl.types import Criterion, Sample


@kind("judge")
class Judge(Asker, ABC):
    """Decides the criteria that no program can check."""

    @abstractmethod
    def decide(self, cases: Sequence[tuple[Sample, str, Criterion]]) -> list[bool | None]:
        """Does the response to the sample keep the criterion? None when the judgement failed; never a guess."""
