"""Comparison of two numbers, as win rate and KL in Figure 4 of the segment paper, with the models that are best in
both.

A point is a model of a finished evaluation. It is Pareto-optimal when no other point has a larger (or equal) y at a
smaller (or equal) x. Points of one series (one recipe) are labelled with the settings in which its runs differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.measuring.number_names import NumberName, pick
from fgrl.measuring.statistics import Estimate
from fgrl.runs.results.table import Row, Table

ZERO = 1e-6
"""Absolute value of x below which a point is the reference itself."""


@dataclass
class Point:
    """Model in the plane of two numbers."""

    series: str
    model: str
    label: str
    """Settings in which it differs from the other points of its series."""
    x: Estimate
    y: Estimate
    best: bool = False
    """True if it is Pareto-optimal."""

    @property
    def at(self) -> tuple[float, float]:
        return self.x.mean or 0.0, self.y.mean or 0.0

    @property
    def start(self) -> bool:
        """Return True if x is 0: the reference itself."""
        return abs(self.at[0]) < ZERO

    def as_json(self) -> dict[str, Any]:
        ends = {name: each.model_dump(include={"mean", "low", "high"}) for name, each in (("x", self.x), ("y", self.y))}
        return {"series": self.series, "model": self.model, "settings": self.label, "best": self.best, **ends}


@dataclass
class Frontier:
    """Models in the plane of two numbers, with the Pareto-optimal ones marked."""

    x_name: NumberName
    y_name: NumberName
    points: list[Point]
    skipped: list[str]
    """Recipes without a finished evaluation."""

    def as_json(self) -> dict[str, Any]:
        points = [point.as_json() for point in self.points]
        return {"x": str(self.x_name), "y": str(self.y_name), "points": points, "not run": self.skipped}


def frontier(table: Table, x: str, y: str, models: Sequence[str] = ()) -> Frontier:
    """Return the points of all evaluations, for `models` (all if empty), with the Pareto-optimal points marked.

    x, y: `[STAGE/]METRIC[.NUMBER]`, or a part of it that is unambiguous. If several stages have x, the stage of y is
    used.

    Raises `UsageError` if an evaluation does not have the numbers, or if a name is ambiguous.
    """
    found = Frontier(NumberName("", ""), NumberName("", ""), [], table.not_run)
    recipes: dict[str, list[Row]] = {}
    for row in table.rows:
        recipes.setdefault(row.title, []).append(row)
    points: dict[tuple[Any, ...], Point] = {}
    for rows in recipes.values():
        known = list(dict.fromkeys(row.name for row in rows))
        up = pick(known, y)
        across = pick(known, x, prefer=up.stage)
        found.x_name, found.y_name = across.name, up.name
        costs = {row.model: row.value for row in rows if row.name == across and row.value.mean is not None}
        for row in rows:
            if row.name == up and row.value.mean is not None and row.model in costs and row.model in (models or costs):
                point = Point(row.recipe, row.model, row.row, costs[row.model], row.value)
                # the reference that every recipe of a sweep compares with is one point
                points.setdefault((row.model, *point.at, "" if point.start else row.recipe), point)
    series = list(dict.fromkeys(row.recipe for row in table.rows))
    found.points = sorted(points.values(), key=lambda each: (not each.start, series.index(each.series), each.at[0]))
    for point in found.points:
        point.best = not any(dominates(other, point) for other in found.points)
    return found


def dominates(point: Point, other: Point) -> bool:
    """Return True if a point is at least as good as the other in both numbers and better in one."""
    (x, y), (other_x, other_y) = point.at, other.at
    return x <= other_x and y >= other_y and (x, y) != (other_x, other_y)
