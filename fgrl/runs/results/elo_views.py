"""Elo ratings for `fgrl elo`: fitted to games from observations, from records of games or from verdicts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError
from fgrl.measuring import elo, pairwise
from fgrl.measuring.elo import Anchor, Contest, Ratings, RatingSettings
from fgrl.measuring.pairwise import Game
from fgrl.measuring.rated import GAMES
from fgrl.measuring.statistics import Estimate, Measured, estimate
from fgrl.runs.results.table import Row, Table
from fgrl.types import Sample, read_jsonl


@dataclass(frozen=True)
class Changes:
    """Changes to the settings with which ratings were fitted; None keeps a setting."""

    anchor: Anchor | None = None
    ridge: float | None = None
    resamples: int | None = None
    level: float | None = None
    seed: int | None = None
    by: Collection[str] = field(default_factory=tuple)
    """People or models whose games count; empty: all games."""

    def on(self, settings: Mapping[str, Any]) -> RatingSettings:
        """Return settings with these changes."""
        own = {name: value for name, value in vars(self).items() if name != "by" and value is not None}
        return RatingSettings.model_validate({**settings, **own})


@dataclass(frozen=True)
class EloView:
    """Ratings of one metric, stage or file."""

    source: str
    """Recipe and stage; empty for files of verdicts."""
    title: str
    about: str
    numbers: Mapping[str, Mapping[str, Estimate]]
    """Estimates by model, the best first, and by the number's name."""
    best: str | None = None
    meetings: Sequence[tuple[str, str, float, float, Estimate]] = ()
    """Every two models that met: the points of each against the other, a tie counting half, and the difference of the
    ratings.
    """
    settings: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        names = ("first", "second", "won", "lost", "difference")
        models = [
            {"model": model, **{name: each.model_dump() for name, each in own.items()}}
            for model, own in self.numbers.items()
        ]
        meetings = [dict(zip(names, (*met[:-1], met[-1].model_dump()), strict=True)) for met in self.meetings]
        shown = {"source": self.source, "title": self.title, "about": self.about, "best": self.best}
        return {**shown, "models": models, "meetings": meetings, "settings": self.settings}


def of_rows(source: str, rows: Sequence[Row], changes: Changes) -> EloView:
    """Return the ratings of rows. rows: all numbers of one metric. Raises `DataError` if no games were decided by
    `changes.by`.
    """
    title, out = rows[0].metric.metric, rows[0].evaluation.product
    rated = {row.model: row.measured for row in rows if row.metric.number == "rating" and row.measured is not None}
    if not rated:  # an earlier version
        numbers: dict[str, dict[str, Estimate]] = {}
        for row in sorted(rows, key=lambda row: row.value.mean or 0.0, reverse=True):
            if row.metric.number == "rating":
                numbers[row.model] = {each.metric.number: each.value for each in rows if each.model == row.model}
        return EloView(source, title, rows[0].about, numbers)
    contest, first = Contest.observed(rated), next(iter(rated.values())).parameters
    anchor = contest.models[first["level"][0]] if len(first["level"]) == 1 else None
    given = {"anchor": {"model": anchor, "rating": first["rating"]}, "ridge": first["ridge"]}
    settings = changes.on(given | dict(rows[0].evaluation.observed.metrics[title].options))
    if changes.by:
        assert out is not None
        names = {title, re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")}
        files = [path for path in out.glob(GAMES) if path.stem.partition("-")[2] in names]
        return of_games(
            source, title, [game for path in files for game in read_jsonl(path, Game)], settings, changes.by
        )
    measured: dict[str, dict[str, Measured]] = {}
    for row in rows:
        if row.measured is not None:
            measured.setdefault(row.model, {})[row.metric.number] = row.measured
    return _view(source, title, rows[0].about, measured, Ratings(contest, settings), settings)


def of_table(table: Table, changes: Changes, stages: Collection[str] = ()) -> list[EloView]:
    """Return the ratings in a table for these stages; empty: for all. Raises `DataError`, as `of_rows`."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in table.rows:
        if not stages or row.stage in stages:
            groups.setdefault((row.title, row.stage, row.metric.metric), []).append(row)
    rated = {at: rows for at, rows in groups.items() if any(row.metric.number == "rating" for row in rows)}
    return [of_rows(f"{title}, {stage}", rows, changes) for (title, stage, _metric), rows in rated.items()]


def of_files(paths: Iterable[Path], changes: Changes) -> EloView:
    """Return the ratings by the verdicts in all files of samples. Raises `DataError` if there are none."""
    paths = list(paths)
    games = [game for path in paths for game in pairwise.recorded_games(read_jsonl(path, Sample))]
    title = ", ".join(path.name for path in paths)
    if not games:
        raise DataError(f"{title}: no sample has `verdicts`, as the annotation page exports them")
    return of_games("", title, games, changes.on({}), changes.by)


def of_games(source: str, title: str, games: Sequence[Game], settings: RatingSettings, by: Collection[str]) -> EloView:
    """Return the ratings of games. by: only games that these people or models decided; empty: all. Raises `DataError`
    if there are none.
    """
    chosen = [game for game in games if not by or game.by in by]
    if not chosen:
        known = ", ".join(sorted({game.by or "unknown" for game in games}))
        raise DataError(f"{title}: no games were decided by {' or '.join(by)}; there are games by {known}")
    ratings = Ratings(Contest.of(chosen), settings)
    return _view(source, title, elo.about(chosen, settings), elo.numbers(chosen, ratings), ratings, settings)


def _view(
    source: str, title: str, about: str, measured: Mapping[str, Mapping[str, Measured]], ratings: Ratings,
    settings: RatingSettings,
) -> EloView:  # fmt: skip
    options, order = settings.bootstrap._asdict(), [model for model in ratings.in_order() if model in measured]
    numbers = {}
    for model in order:
        fitted = {"rating": ratings.rating(model), "difference": ratings.to_best(model)}
        numbers[model] = {name: estimate(each, **options) for name, each in {**measured[model], **fitted}.items()}
    meetings = []
    for one, two in combinations(order, 2):
        won, lost = (float(ratings.points[ratings.place[a], ratings.place[b]]) for a, b in ((one, two), (two, one)))
        if won + lost:
            meetings.append((one, two, won, lost, estimate(ratings.difference(one, two), **options)))
    known = {"anchor": settings.anchor.model_dump(), "ridge": settings.ridge, **options}
    return EloView(source, title, about, numbers, ratings.best, meetings, known)
