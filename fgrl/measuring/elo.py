"""Elo ratings of models from games between them: a Bradley-Terry model, with intervals over prompts.

P(i beats j) = 1 / (1 + 10^((R_j - R_i) / 400)) ("Fine-Tuning LLMs with Fine-Grained Human Feedback on Text Spans",
appendix D). All games are fitted at once by maximum likelihood (Zermelo 1929; Bradley and Terry 1952), so their order
does not matter. A tie is half a win for each side; a missing verdict is counted and left out. Games only determine
differences of ratings: `Anchor` fixes their level.

A finite maximum exists if and only if every model has won against every other model at least indirectly: A against B, B
against C (Ford 1957). Models for which this holds form a group. If one group won all its games against another, the
likelihood grows without limit as the groups move apart: their difference is infinite. If no games link two groups, it
is undefined. Both differences are missing, with the reason, unless a ridge penalty makes every rating finite.

Not included: ratings that depend on the order of games (the K-factor of chess), and models of ties (Davidson 1970).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import Field

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.base.visible import quantity
from fgrl.measuring.bradley_terry import gaps
from fgrl.measuring.pairwise import Game
from fgrl.measuring.statistics import Measured, weighted_mean
from fgrl.registry import Settings

np = lazy.load("numpy")

NEVER_RATED = "none of its games was decided"
HINT = "`ridge` gives a finite rating"


# -- settings ----------------------------------------------------------------------------------------------------------


class Anchor(Settings):
    """Level of the ratings, because games only determine differences."""

    model: str | None = None
    """Model that has this rating; null: the mean over the models has it (over the largest group, if some are infinitely
    far from the others).
    """
    rating: float = 1500.0
    """Rating of the anchor."""


class EloSettings(Settings):
    """Settings of the fit."""

    anchor: Anchor = Field(default_factory=Anchor)
    """Anchor that fixes the level of the ratings: the mean is 1500 by default; {model: base, rating: 1000} gives one
    model this rating.
    """
    ridge: float = Field(0.0, ge=0)
    """Coefficient of a penalty: ridge / 2 x the sum of squared strengths (nats from the mean) is added to the negative
    log-likelihood. Then every rating is finite, also that of an undefeated model, and all are closer to each other. 0
    is maximum likelihood.
    """


class Bootstrap(NamedTuple):
    """Samples of prompts with replacement: all games of a prompt stay together."""

    resamples: int = 1000
    level: float = 0.95
    seed: int = 0


class RatingSettings(EloSettings):
    """Settings of the fit and of its intervals."""

    resamples: int = Field(1000, ge=100)
    """Number of bootstrap samples."""
    level: float = Field(0.95, gt=0, lt=1)
    """Confidence level of the intervals."""
    seed: int = 0
    """Seed of the bootstrap samples."""

    @property
    def bootstrap(self) -> Bootstrap:
        return Bootstrap(self.resamples, self.level, self.seed)


# -- games as an array -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """Decided games of M models on C prompts. Models and prompts are sorted, so the order of games has no effect."""

    models: tuple[str, ...]
    prompts: tuple[str, ...]
    points: Any
    """[C,M,M]: `points[c, i, j]` is the points of model i against model j on prompt c: a win is 1, a tie 0.5 for each
    side.
    """

    @classmethod
    def of(cls, games: Iterable[Game]) -> Contest:
        """Return the contest. A prompt or a model whose verdicts are all missing is part of it, without points."""
        games = list(games)
        models = tuple(sorted({name for game in games for name in (game.first, game.second)}))
        prompts = tuple(sorted({game.id for game in games}))
        place = {name: number for number, name in enumerate(models)}
        row = {id: number for number, id in enumerate(prompts)}
        points = np.zeros((len(prompts), len(models), len(models)))
        for game in games:
            if (value := game.value) is not None:
                first, second = place[game.first], place[game.second]
                points[row[game.id], first, second] += value
                points[row[game.id], second, first] += 1 - value
        return cls(models, prompts, points)

    @classmethod
    def observed(cls, ratings: Mapping[str, Measured]) -> Contest:
        """Return the games from which ratings were computed. ratings: of every model that has one or could have one."""
        (first, *_) = ratings.values()
        size = math.isqrt(first.rows.shape[1])
        names = {rating.parameters["model"]: model for model, rating in ratings.items()}
        models = tuple(names.get(place, f"model {place}") for place in range(size))
        return cls(models, tuple(map(str, first.clusters)), first.rows.reshape(-1, size, size))


# -- ratings -----------------------------------------------------------------------------------------------------------


class Ratings:
    """Ratings of a contest's models, as statistics that can be resampled by prompt.

    Raises `DataError` if the anchor is not one of the models.
    """

    def __init__(self, contest: Contest, settings: EloSettings) -> None:
        self.contest, self.settings = contest, settings
        self.place = {name: number for number, name in enumerate(contest.models)}
        self.points = contest.points.sum(0)
        """[M,M]: points of all games."""
        self.whole = gaps(self.points[None], settings.ridge)[0] if contest.models else np.zeros((0, 0))
        """[M,M]: `gaps` of all games."""
        self.level_of = self._level_of()
        """Places of the models whose mean has the anchor's rating."""
        self.best = self._best()
        """Model that is not worse than any other; None if some cannot be compared. Of equally good models the first by
        name.
        """

    def rating(self, model: str) -> Measured:
        """Return the rating in points: the anchor's level plus the mean gap to the models that have it."""
        level = {"level": self.level_of, "rating": self.settings.anchor.rating}
        return self._measured("elo_rating", level, model, missing="" if self.level_of else self._no_level())

    def difference(self, model: str, other: str) -> Measured:
        """Return the rating of the model minus that of the other, in points."""
        return self._measured("elo_difference", {"other": self.place[other]}, model, other)

    def to_best(self, model: str) -> Measured:
        """Return the rating minus that of the best model of all games, in points; 0 for the best model itself."""
        if self.best is None:
            undefined = self.difference(model, model)
            return replace(undefined, n=0, missing="no model can be compared with all others")
        return self.difference(model, self.best)

    def in_order(self) -> list[str]:
        """Return the models, best first: sorted by the number of models that each is better than, then by name."""
        better = np.sign(np.nan_to_num(np.round(self.whole, 9))).sum(-1)
        return sorted(self.contest.models, key=lambda name: (-better[self.place[name]], name))

    # ------------------------------------------------------------------------------------------------------------------

    def _measured(
        self, statistic: str, parameters: Mapping[str, Any], model: str, other: str = "", missing: str = ""
    ) -> Measured:
        place = self.place[model]
        n = round(float(self.points[place].sum() + self.points[:, place].sum()))
        rows = self.contest.points.reshape(len(self.contest.prompts), -1)
        parameters = {"model": place, "ridge": self.settings.ridge, **parameters}
        measured = Measured(self.contest.prompts, statistic, rows, n, parameters=parameters, missing=missing or None)
        if not missing and not np.isfinite(measured.of_draws(np.ones((1, len(rows))))[0]):
            reasons = [self._why(name) for name in filter(None, (model, other))]
            missing = next(filter(None, reasons), f"no games link it with {other or 'the others'} in both directions")
        return replace(measured, missing=missing or None)

    def _level_of(self) -> list[int]:
        anchor, models = self.settings.anchor.model, self.contest.models
        if anchor is not None:
            if anchor not in self.place:
                raise DataError(f"anchor: {anchor!r} has no games; there are games of {', '.join(models) or 'nobody'}")
            return [self.place[anchor]]
        finite = np.isfinite(self.whole)
        sizes = finite.sum(-1)
        largest = [place for place in range(len(models)) if sizes[place] == sizes.max()]
        alone = bool(largest) and len(models) > 1 and sizes.max() == 1
        return [] if alone or len(largest) > sizes.max(initial=0) else largest

    def _best(self) -> str | None:
        at_least = np.round(self.whole, 9) >= 0  # NaN is not
        return next((name for name, place in self.place.items() if at_least[place].all()), None)

    def _no_level(self) -> str:
        return f"no largest group of models has finite differences, so nothing can be the mean; {HINT}"

    def _alone(self, model: str) -> str:
        """Return the reason why maximum likelihood has no finite rating of the model by itself; empty if it has one."""
        won, lost = float(self.points[self.place[model]].sum()), float(self.points[:, self.place[model]].sum())
        if won + lost == 0:
            return NEVER_RATED
        games = f"{round(won + lost):,} decided game{'s' if round(won + lost) > 1 else ''}"
        return f"it won all of its {games}" if lost == 0 else f"it lost all of its {games}" if won == 0 else ""

    def _why(self, model: str) -> str:
        alone = self._alone(model)
        return f"{alone}; {HINT}" if alone else ""


# -- numbers -----------------------------------------------------------------------------------------------------------


def numbers(games: Sequence[Game], ratings: Ratings) -> dict[str, dict[str, Measured]]:
    """Return by model: `rating`, `difference` (to the best), `win_rate` (ties count half), and the shares `ties` and
    `missing` of its games. If the order of presentation is known, `chose_first` is the share for the answer shown
    first, among the judgments that chose. If both orders were judged, `inconsistent` is the share of games in which
    they disagree.
    """
    prompts = ratings.contest.prompts
    sides = _by_model(games)
    both_orders = any(len(game.shown) > 1 for game in games)
    shown = any(game.shown for game in games)
    result: dict[str, dict[str, Measured]] = {}
    for model in ratings.contest.models:
        own = sides[model]
        ids = [game.id for game, _value in own]
        values = [value for _game, value in own]
        result[model] = {
            "rating": ratings.rating(model),
            "difference": ratings.to_best(model),
            "win_rate": _share(values, ids, prompts),
            "ties": _share([None if value is None else float(value == 0.5) for value in values], ids, prompts),
            "missing": _share([float(value is None) for value in values], ids, prompts),
        }
        if shown:
            result[model]["chose_first"] = chose_first([game for game, _value in own], prompts)
        if both_orders:
            agree = [game.agree for game, _value in own]
            result[model]["inconsistent"] = _share([None if a is None else float(not a) for a in agree], ids, prompts)
    return result


def chose_first(games: Iterable[Game], prompts: Sequence[str]) -> Measured:
    """Return the share for the answer shown first, among the judgments that chose."""
    looks = sorted(
        (game.id, float(look.verdict == "first"))
        for game in games
        for look in game.shown
        if look.verdict in ("first", "second")
    )
    return _share([chose for _id, chose in looks], [id for id, _chose in looks], prompts)


def about(games: Sequence[Game], settings: EloSettings) -> str:
    """Return a one-line description of the fit."""
    anchor = settings.anchor
    level = f"{anchor.model} has {anchor.rating:g}" if anchor.model else f"mean {anchor.rating:g}"
    fit = "maximum likelihood" if settings.ridge == 0 else f"ridge {settings.ridge:g}"
    judges = ", ".join(sorted({game.by for game in games if game.by}))
    missing = sum(game.verdict is None for game in games)
    parts = [
        f"Bradley-Terry by {fit}, base 10, scale 400, {level}",
        f"{quantity(len(games), 'game')}" + (f" judged by {judges}" if judges else ""),
        f"{missing:,} of them without a verdict" if missing else "",
    ]
    return ", ".join(filter(None, parts))


def _by_model(games: Iterable[Game]) -> Mapping[str, list[tuple[Game, float | None]]]:
    """Return the games of each model with their points for it, in an order that does not depend on that of the games."""
    sides: dict[str, list[tuple[Game, float | None]]] = {}
    for game in games:
        value = game.value
        sides.setdefault(game.first, []).append((game, value))
        sides.setdefault(game.second, []).append((game, None if value is None else 1 - value))
    return sides


def _share(values: Sequence[float | None], ids: Sequence[str], prompts: Sequence[str]) -> Measured:
    """Return the mean of the values, resampled over all prompts in their own order."""
    none: list[float | None] = [None] * len(prompts)
    return weighted_mean([*none, *values], [*prompts, *ids])
