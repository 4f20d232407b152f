"""Common parts of metrics and stages that rate models by games: their settings and the files that they leave behind.

games-<name>.jsonl    every game: the prompt, the two models, the verdict, who decided, and what was shown first
elo-<name>.json       the table: ratings, differences to the best model, wins, ties and losses
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pydantic import PrivateAttr, ValidationError

from fgrl.errors import DataError
from fgrl.evaluation import elo
from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Compared
from fgrl.evaluation.elo import Contest, EloTable, Ratings, RatingSettings
from fgrl.evaluation.pairwise import Game
from fgrl.evaluation.statistics import Measured
from fgrl.files import write_json
from fgrl.types import read_jsonl, write_jsonl

GAMES, TABLE = "games-*.jsonl", "elo-*.json"
"""Names of the files."""


class RatedMetric(RatingSettings, Compared):
    """A metric that rates models by games between their answers. `difference` is to the best model, not to the
    baseline.
    """

    versus: str | None = None
    """Every other model meets this one; null: every two models meet, once on each prompt and answer."""

    _games: list[Game] = PrivateAttr(default_factory=list)

    @abstractmethod
    def games(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> list[Game]:
        """Return the games of at least two models."""

    def check_models(self, names: Collection[str], baseline: str) -> None:
        for field, model in (("versus", self.versus), ("anchor.model", self.anchor.model)):
            if model is not None and model not in names:
                raise ValueError(f"elo: {field} {model!r} is not one of the models: {', '.join(names)}")
        if len(set(names)) < 2:
            raise ValueError("elo rates models by comparing them, and there is only one")

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        self._games = self.games(answers, baseline) if len(answers) > 1 else []
        if not self._games:
            return {}
        if self._run is not None:
            write(self._run.out, self.slug, self.called, self._games, self)
        measured = elo.numbers(self._games, Ratings(Contest.of(self._games), self))
        return {model: measured[model] for model in answers if model in measured}

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        return elo.about(self._games, self) if self._games else ""


# -- files -------------------------------------------------------------------------------------------------------------


def write(folder: Path, slug: str, title: str, games: Sequence[Game], settings: RatingSettings) -> EloTable:
    """Both files. Raises `DataError` where there is nothing to rate."""
    table = elo.table(title, games, settings, settings.bootstrap)
    write_jsonl(folder / GAMES.replace("*", slug), games)
    write_json(folder / TABLE.replace("*", slug), table.model_dump())
    return table


def read_games(path: Path) -> list[Game]:
    """Raise `DataError` with its place for a line that is no game."""
    return list(read_jsonl(path, Game))


def read_tables(folder: Path) -> dict[str, EloTable]:
    """Return the tables in a folder, by the part of the file's name that names them. Raises `DataError` for a damaged
    one.
    """
    slugs = [path.stem.partition("-")[2] for path in folder.glob(TABLE)]
    return {slug: _read_table(folder / TABLE.replace("*", slug)) for slug in sorted(slugs)}


def _read_table(path: Path) -> EloTable:
    try:
        return EloTable.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise DataError(f"{path} is not a table of Elo ratings: {str(error).splitlines()[0]}") from None
