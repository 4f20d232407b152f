"""One number against another, as win rate against KL in Figure 4 of the segment paper, and the models that are best in
both.

A point is a model of a finished evaluation. It is Pareto-optimal when no other point has a larger (or equal) y at a
smaller (or equal) x. Points of one series (one recipe) are labelled with the settings in which its runs differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fgrl.evaluation.number_names import NumberName, StageNumber, pick
from fgrl.evaluation.statistics import Estimate
from fgrl.results.differing import labels
from fgrl.results.evaluations import RecipeResults

ZERO = 1e-6
"""A point whose x is smaller in size is the reference itself."""


@dataclass
class Point:
    """A model on the plane of two numbers."""

    series: str
    model: str
    label: str
    """Settings in which it differs from the others of its series."""
    x: Estimate
    y: Estimate
    best: bool = False
    """Pareto-optimal."""
    start: bool = False
    """At x = 0: the reference itself."""

    def as_json(self) -> dict[str, Any]:
        numbers = {
            axis: each.model_dump(include={"mean", "low", "high"}) for axis, each in (("x", self.x), ("y", self.y))
        }
        return {"series": self.series, "model": self.model, "settings": self.label, "best": self.best, **numbers}


@dataclass
class Frontier:
    """The models on the plane of two numbers, and which are Pareto-optimal."""

    x_name: NumberName
    y_name: NumberName
    points: list[Point]
    skipped: list[str] = field(default_factory=list)
    """Recipes without a finished evaluation."""

    def as_json(self) -> dict[str, Any]:
        return {
            "x": str(self.x_name),
            "y": str(self.y_name),
            "points": [point.as_json() for point in self.points],
            "not run": self.skipped,
        }


def frontier(results: Sequence[RecipeResults], x: str, y: str, models: Sequence[str] = ()) -> Frontier:
    """Points of all evaluations, of `models` (all when empty), with the Pareto-optimal ones marked.

    x, y: `[STAGE/]METRIC[.NUMBER]`, or a part of it that is clear without the rest. Where several stages have x, the
    stage of y is meant.

    Raises `UsageError` when an evaluation does not have the numbers, or a name is not clear.
    """
    result = Frontier(NumberName("", ""), NumberName("", ""), [])
    for recipe, label in zip(results, labels(results), strict=True):
        known = {
            StageNumber(stage, measure.name): measure
            for stage, evaluation in recipe.evaluations.items()
            for measure in evaluation.measures
        }
        if not known:
            result.skipped.append(" ".join(filter(None, (recipe.recipe, label))))
            continue
        y_number = pick(list(known), y)
        x_number = pick(list(known), x, prefer=y_number.stage)
        result.x_name, result.y_name = x_number.name, y_number.name
        for number in known[y_number].models:
            across, up = known[x_number][number.model], number.value
            if (
                (models and number.model not in models)
                or across is None
                or across.value.mean is None
                or up.mean is None
            ):
                continue
            start = abs(across.value.mean) < ZERO
            result.points.append(Point(recipe.recipe, number.model, label, across.value, up, start=start))
    result.points = _without_duplicates(result.points)
    for point in result.points:
        point.best = not any(dominates(other, point) for other in result.points)
    series = [recipe.recipe for recipe in results]
    result.points.sort(key=lambda point: (not point.start, series.index(point.series), point.x.mean))
    return result


def dominates(point: Point, other: Point) -> bool:
    """At least as good in both numbers and better in one."""
    (x, y), (other_x, other_y) = ((each.x.mean or 0.0, each.y.mean or 0.0) for each in (point, other))
    return x <= other_x and y >= other_y and (x < other_x or y > other_y)


def _without_duplicates(points: Iterable[Point]) -> list[Point]:
    """Return the same measured point once, e.g. the reference that every recipe of a sweep compares with."""
    first: dict[tuple[Any, ...], Point] = {}
    for point in points:
        key = (point.model, point.x.mean, point.y.mean, "" if point.start else point.series)
        first.setdefault(key, point)
    return list(first.values())
