"""Choice of the points of a sweep: every combination, seeded draws, or Bayesian search; and early stopping of points.

Point k of `random` is drawn from numpy's generator with the seed [seed of the sweep, k], one number in [0, 1) for each
parameter in the order of the file, taken as a quantile of its distribution. So a draw depends neither on the number of
points nor on earlier points.

`bayes` draws its first `FIRST_RANDOM` points in the same way. Each later point is the proposal of optuna's `GPSampler`
(a Gaussian process, expected improvement) given the results so far, seeded by [seed, k]. With one job, a sweep that was
killed proposes the same points as an undisturbed sweep. With several jobs, proposals depend on which points had
finished.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import Requires, UsageError
from fgrl.experiments.recipe.sweeps import EarlyTermination, Parameter, SweepFile
from fgrl.runs.results.sweep_records import PointRecord

np = lazy.load("numpy")

FIRST_RANDOM = 10
"""Number of points of `bayes` that are drawn before the first proposal."""


def _optuna(purpose: str) -> Any:
    Requires("optuna", f"{purpose} needs the package optuna", extra="sweep").check()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Search:
    """The points of a sweep, in order."""

    def __init__(self, sweep: SweepFile, seed: int, most: int | None) -> None:
        """Create the search. most: number of points; None: the number in the file. Raises `UsageError` if neither is
        given, and `Unavailable` without optuna.
        """
        self.sweep, self.seed = sweep, seed
        cap = most or sweep.run_cap
        if sweep.method == "grid":
            every = math.prod(len(each.choices or []) for each in sweep.parameters.values())
            cap = every if cap is None else min(cap, every)
        if cap is None:
            raise UsageError(
                f"method: {sweep.method} has no end: give the number of points, with --points N or run_cap: N"
            )
        self.count = cap
        """Number of points."""
        if sweep.method == "bayes":
            _optuna("method: bayes")

    def draw(self, known: Sequence[PointRecord]) -> PointRecord | None:
        """Return the next point, or None if there are no more. known: all points so far, in order."""
        number = len(known) + 1
        if number > self.count:
            return None
        shares: dict[str, float] = {}
        if self.sweep.method == "bayes" and number > FIRST_RANDOM and any(map(self._told, known)):
            shares = self._proposed(number, known)
        elif self.sweep.method != "grid":
            drawn = np.random.default_rng([self.seed, number])
            shares = {name: float(drawn.random()) for name in self.sweep.parameters}
        return PointRecord(number=number, parameters=self.values(number, shares), shares=shares)

    def values(self, number: int, shares: Mapping[str, float]) -> dict[str, Any]:
        """Return the parameters of a point. They come from the sweep file and never from a record, which has no
        secrets.
        """
        parameters = self.sweep.parameters
        if self.sweep.method == "grid":
            choices = [each.choices or [] for each in parameters.values()]
            chosen = next(itertools.islice(itertools.product(*choices), number - 1, None))
            return dict(zip(parameters, chosen, strict=True))
        return {name: each.at(shares[name]) for name, each in parameters.items()}

    def _proposed(self, number: int, known: Sequence[PointRecord]) -> dict[str, float]:
        optuna = _optuna("method: bayes")
        searched = self.sweep.varied
        spaces = {name: _space(each, optuna.distributions) for name, each in searched.items()}
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=0)
        assert self.sweep.metric is not None
        study = optuna.create_study(sampler=sampler, direction=self.sweep.metric.goal)
        complete, running = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.RUNNING
        for point in known:
            told = self._told(point)
            if told is None and point.state == "failed":
                told = self._imputed(point, known)
            params = {name: _place(each, point.shares[name]) for name, each in searched.items()}
            state = running if told is None else complete
            study.add_trial(optuna.trial.create_trial(state=state, params=params, distributions=spaces, value=told))
        asked = study.ask(spaces).params
        return {
            name: _share(each, asked[name]) if name in asked else 0.5 for name, each in self.sweep.parameters.items()
        }

    def _told(self, point: PointRecord) -> float | None:
        """Return the number of a point, or its last number if it was stopped early."""
        if point.state == "stopped early":
            return point.reported[-1][1]
        return point.value.mean if point.state == "finished" and point.value is not None else None

    def _imputed(self, point: PointRecord, known: Sequence[PointRecord]) -> float | None:
        """Return the number that stands for a failed point, according to `metric.impute`."""
        assert self.sweep.metric is not None
        values = [told for each in known if (told := self._told(each)) is not None]
        if self.sweep.metric.impute == "latest" and point.reported:
            return point.reported[-1][1]
        best = max if self.sweep.metric.goal == "maximize" else min
        worst = min if best is max else max
        return (best if self.sweep.metric.impute == "best" else worst)(values, default=None)


def _space(parameter: Parameter, distributions: Any) -> Any:
    if parameter.values is not None:
        return distributions.CategoricalDistribution(list(range(len(parameter.values))))
    return distributions.FloatDistribution(0.0, 1.0)


def _place(parameter: Parameter, share: float) -> float | int:
    """Return the value that optuna gets for a share: for categories, their index in the list."""
    if parameter.values is None:
        return share
    value = parameter.at(share)
    return next(place for place, each in enumerate(parameter.values) if each is value)


def _share(parameter: Parameter, asked: Any) -> float:
    """Return the share that `Parameter.at` maps to the value that optuna proposes."""
    if parameter.values is None:
        return float(asked)
    shares = parameter.probabilities or [1 / len(parameter.values)] * len(parameter.values)
    return float(sum(shares[:asked]) + shares[asked] / 2)


class EarlyStopping:
    """Early stopping of points during training, by optuna's successive halving (`SuccessiveHalvingPruner`).

    After `min_iter` values of the number, after eta times as many, and so on, a point continues if it is among the best
    1/eta of the points that reached this length.
    """

    def __init__(self, rule: EarlyTermination, goal: str) -> None:
        self._optuna = _optuna("early_terminate")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            pruner = self._optuna.pruners.SuccessiveHalvingPruner(
                min_resource=rule.first, reduction_factor=max(2, round(rule.eta))
            )
        self._study = self._optuna.create_study(direction=goal, pruner=pruner)
        self._trials: dict[int, Any] = {}

    def stops(self, point: PointRecord, count: int, value: float) -> bool:
        """Return True if the point is to be stopped. It has logged `count` values so far, the last of them `value`."""
        if point.number not in self._trials:
            self._trials[point.number] = self._study.ask()
        trial = self._trials[point.number]
        trial.report(value, count)
        return bool(trial.should_prune())

    def replay(self, points: Sequence[PointRecord]) -> None:
        """Restore the values that earlier processes read."""
        for point in points:
            for count, value in point.reported if point.state in ("finished", "stopped early") else ():
                self.stops(point, count, value)
