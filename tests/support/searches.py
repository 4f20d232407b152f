"""A search of a sweep whose points need no run: each has its number at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fgrl.experiments.pipeline.sweep_search import Search
from fgrl.experiments.recipe.sweeps import Objective, Parameter, SweepFile
from fgrl.measuring.statistics import Estimate
from fgrl.runs.results.sweep_records import PointRecord


def sweep_of(parameters: dict[str, Parameter], method: Any, goal: Any) -> SweepFile:
    return SweepFile(
        command=["fgrl", "run", "r.yaml", "${args}"], method=method, parameters=parameters,
        metric=Objective(name="stage/number", goal=goal),
    )  # fmt: skip


def searched(sweep: SweepFile, seed: int, most: int, objective: Callable[[dict[str, Any]], float]) -> list[PointRecord]:
    """The points of a search, in order."""
    search, points = Search(sweep, seed, most), list[PointRecord]()
    while (point := search.draw(points)) is not None:
        point.state, point.value = "finished", Estimate(mean=objective(point.parameters))
        points.append(point)
    return points
