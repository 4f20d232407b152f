"""Meaning of one word of a command: a recipe with each seed and variation, or the runs of a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fgrl.base.errors import UsageError
from fgrl.runs.run import Run


@dataclass
class Source:
    """Meaning of one word: a recipe with each seed and variation, or the runs of a folder."""

    path: Path
    recipes: list[Run]
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.recipes[0].name

    def by_seed(self) -> dict[int, Run]:
        """Return the runs by seed. Raises `UsageError` if one seed has several settings."""
        result: dict[int, Run] = {}
        for run in self.recipes:
            other = result.setdefault(run.seed, run)
            if other is not run:
                raise UsageError(
                    f"{self.path} holds runs with seed {run.seed} and different settings: {other.folder} and {run.folder}; "
                    "name one of them"
                )
        return result
