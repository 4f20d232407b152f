"""Curves of a metric over the steps of trainings: one for each recipe and stage, the mean over its seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from fgrl.base.errors import DataError, UsageError
from fgrl.measuring.statistics import Estimate, student
from fgrl.registry.problems import closest
from fgrl.runs.run import Run
from fgrl.runs.series import Series
from fgrl.runs.stage import Stage

MOST_SUGGESTED = 3


@dataclass
class Curve:
    """Curve of one recipe."""

    name: str
    seeds: list[int]
    points: dict[float, Estimate]
    """Values by step, in order. With several seeds, the mean with Student's t interval over them; with one seed, its
    value with the interval in its log.
    """

    def as_json(self) -> dict[str, Any]:
        ends = [
            {"step": step, **each.model_dump(include={"mean", "low", "high"})} for step, each in self.points.items()
        ]
        return {"name": self.name, "seeds": self.seeds, "points": ends}


def curves_of(
    name: str, runs: Mapping[int, Run], metric: str, stages: Sequence[str] = ()
) -> tuple[list[Curve], list[int]]:
    """Return a curve for each stage, over the seeds whose stages have finished, and the other seeds.

    stages: see `metric_of`, which also describes the errors `UsageError` and `DataError`.
    """
    by_stage: dict[str, dict[int, Series]] = {}
    absent = []
    for seed, run in runs.items():
        if run.finished and all(is_pattern(stage) or stage in run.finished for stage in stages):
            for stage, series in metric_of(run.finished, metric, stages).items():
                by_stage.setdefault(stage, {})[seed] = series
        else:
            absent.append(seed)
    names = {stage: name if len(by_stage) == 1 else f"{name} {stage}" for stage in by_stage}
    return [curve(names[stage], series) for stage, series in by_stage.items()], absent


def curve(name: str, by_seed: Mapping[int, Series]) -> Curve:
    """Return the curve over the steps at which every seed has a value."""
    seeds = list(by_seed)
    logs = [dict(zip(series.steps, series.values, strict=True)) for series in by_seed.values()]
    steps = sorted(set.intersection(*(set(log) for log in logs))) if logs else []
    if len(seeds) > 1:
        return Curve(name, seeds, {step: student([log[step] for log in logs]) for step in steps})
    intervals = next((series.interval for series in by_seed.values()), {})
    points = {}
    for step in steps:
        low, high = intervals.get(step, (None, None))
        points[step] = Estimate(mean=logs[0][step], low=low, high=high, n=1, groups=1)
    return Curve(name, seeds, points)


def first_reaching(points: Mapping[float, Estimate], level: float) -> float | None:
    """Return the first step whose mean is at least `level`; None if there is none."""
    return next((step for step, point in points.items() if point.mean is not None and point.mean >= level), None)


def metric_of(finished: Mapping[str, Stage], metric: str, stages: Sequence[str] = ()) -> dict[str, Series]:
    """Return a metric in the logs of a run's finished stages, by the stage's name.

    stages: names of stages, or patterns of names (`*`, `apo_*`), which select the stages whose logs have the metric;
    empty: the only stage that logs it. Raises `UsageError` for a stage that has not finished, for a metric that no log
    has, and without `stages` for a metric that several logs have; `DataError` for a log that cannot be read.
    """
    named = [name for name in stages if not is_pattern(name)]
    if absent := [name for name in named if name not in finished]:
        raise UsageError(f'no finished stage "{absent[0]}"; there are: {", ".join(finished) or "none"}')
    series: dict[str, Series] = {}
    known_to: dict[str, list[str]] = {}
    for name, stage in finished.items():
        if not stages or any(fnmatchcase(name, pattern) for pattern in stages):
            logged = _logged(stage)
            known_to[name] = [own.name for own in logged]
            series.update((name, own) for own in logged if own.name == metric)
    if len(series) > 1 and not stages:
        raise UsageError(
            f"the logs of {' and '.join(series)} have \"{metric}\": name one of them with --stage, or several (--stage '*')"
        )
    missing = next((name for name in named if name not in series), None)
    if not series or missing is not None:
        names = list(dict.fromkeys(known_to[missing] if missing is not None else itertools.chain(*known_to.values())))
        close = " or ".join(f'"{name}"' for name in closest(metric, names, MOST_SUGGESTED))
        hint = f"did you mean {close}?" if close else f"there are: {', '.join(names) or 'none'}"
        where = "no log has" if missing is None else f'the log of "{missing}" does not have'
        raise UsageError(f'{where} the metric "{metric}"; {hint}')
    return series


def is_pattern(name: str) -> bool:
    """Return True if the name is a pattern for several stages."""
    return any(sign in name for sign in "*?[")


def _logged(stage: Stage) -> list[Series]:
    series = stage.series
    if stage.notes:
        raise DataError(" ".join(stage.notes))
    return series
