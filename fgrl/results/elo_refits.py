"""Elo tables of finished stages and of files, fitted again where other settings are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.errors import DataError
from fgrl.evaluation import elo, pairwise, rated
from fgrl.evaluation.elo import Anchor, EloTable, RatingSettings
from fgrl.evaluation.pairwise import Game
from fgrl.types import Sample, read_jsonl


@dataclass(frozen=True)
class Changes:
    """Changes to the settings that a table was made with; None keeps them."""

    anchor: Anchor | None = None
    ridge: float | None = None
    resamples: int | None = None
    level: float | None = None
    seed: int | None = None
    by: Collection[str] = field(default_factory=tuple)
    """Only games that these decided; empty: all."""

    def __bool__(self) -> bool:
        return bool(self._settings or self.by)

    @property
    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "by" and value is not None}

    def on(self, settings: Mapping[str, Any]) -> RatingSettings:
        """Return the settings of a table (`EloTable.settings`) with these changes."""
        return RatingSettings.model_validate({**settings, **self._settings})


def of_stage(folder: Path, changes: Changes) -> list[EloTable]:
    """Return the tables in a finished stage's folder, as they are or fitted again to the recorded games. Raises
    `DataError`.
    """
    tables = rated.read_tables(folder / "out")
    if not changes:
        return list(tables.values())
    return [
        _fitted(table.title, rated.read_games(folder / "out" / rated.GAMES.replace("*", slug)), table.settings, changes)
        for slug, table in tables.items()
    ]


def of_files(paths: Iterable[Path], changes: Changes) -> EloTable:
    """One table of the verdicts in all files of samples. Raises `DataError` where there are none."""
    paths = list(paths)
    games = [game for path in paths for game in pairwise.recorded_games(read_jsonl(path, Sample))]
    title = ", ".join(path.name for path in paths)
    if not games:
        raise DataError(f"{title}: no sample has `verdicts`, as the annotation page exports them")
    return _fitted(title, games, {}, changes)


def _fitted(title: str, games: list[Game], settings: Mapping[str, Any], changes: Changes) -> EloTable:
    chosen = [game for game in games if not changes.by or game.by in changes.by]
    if not chosen:
        known = ", ".join(sorted({game.by or "unknown" for game in games}))
        raise DataError(f"{title}: no games were decided by {' or '.join(changes.by)}; there are games by {known}")
    chosen_settings = changes.on(settings)
    return elo.table(title, chosen, chosen_settings, chosen_settings.bootstrap)
