"""Measured numbers with their intervals, laid out for dots on a line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fgrl.report.text import number
from fgrl.results.reading import finite

DIFFERENCES = "differences"
ABOUT = "about"


@dataclass
class Estimate:
    """A value, its interval, and where they lie on their axis (percent of its width)."""

    mean: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""
    places: int | None = None
    """Decimals to show; None: three significant digits."""
    at: float = 0.0
    left: float = 0.0
    right: float = 0.0

    @classmethod
    def of(cls, value: Any) -> Estimate | None:
        """From `{"mean", "low", "high", "n", "note"}` or a bare number; None when it is neither."""
        if isinstance(value, dict):
            if "mean" not in value:
                return None
            n = value.get("n")
            note = str(value.get("note") or "")
            ends = finite(value.get("low")), finite(value.get("high"))
            return cls(finite(value["mean"]), *ends, n if isinstance(n, int) else None, note)
        single = finite(value)
        return cls(single) if single is not None else None

    @property
    def value(self) -> str:
        return self._show(self.mean)

    @property
    def change(self) -> str:
        return ("+" if self.mean is not None and self.mean > 0 else "") + self._show(self.mean)

    @property
    def interval(self) -> str:
        return "" if self.low is None or self.high is None else f"{self._show(self.low)} to {self._show(self.high)}"

    @property
    def changed(self) -> bool | None:
        """Does the interval of a difference exclude zero? None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0

    def _show(self, value: float | None) -> str:
        if value is None or self.places is None:
            return number(value)
        return f"{value:,.{self.places}f}".replace("-", "−")

    @property
    def values(self) -> list[float]:
        return [value for value in (self.mean, self.low, self.high) if value is not None]

    def place(self, low: float, high: float) -> None:
        """Compute the positions on an axis from `low` to `high`."""

        def percent(value: float | None) -> float:
            share = 0.5 if value is None or high <= low else (value - low) / (high - low)
            return round(100 * min(1.0, max(0.0, share)), 2)

        self.at = percent(self.mean)
        self.left, self.right = (percent(self.mean if end is None else end) for end in (self.low, self.high))


@dataclass
class Row:
    model: str
    value: Estimate | None
    difference: Estimate | None


@dataclass
class Measure:
    """One number of one metric, for every model."""

    metric: str
    name: str
    rows: list[Row] = field(default_factory=list)
    zero: float | None = None
    """Where zero lies on the axis of the differences (percent)."""
    about: str = ""
    """How the number came about, in the metric's own words (a signature)."""

    @property
    def title(self) -> str:
        name = self.name.replace("_", " ")
        metric = self.metric.replace("_", " ")
        return metric if name in ("", "mean", metric) else f"{metric}: {name}"


@dataclass
class Headline:
    """One number before and after."""

    measure: Measure
    before: Row
    after: Row


def measures(report: Mapping[str, Any]) -> list[Measure]:
    """Rows of every number in an evaluation's `metrics.json`, the baseline first."""
    baseline = str(report.get("baseline") or "")
    found: dict[tuple[str, str], Measure] = {}
    for metric, by_model in _items(report.get("metrics")):
        differences = dict(_items(_mapping(by_model).get(DIFFERENCES)))
        about = _mapping(by_model).get(ABOUT)
        named = [model for model, _ in _items(by_model) if model not in (DIFFERENCES, ABOUT)]
        models = sorted(named, key=lambda model: model != baseline)
        for model in models:
            of_model = _mapping(by_model)[model]
            numbers = {"": of_model} if Estimate.of(of_model) else _mapping(of_model)
            for name, value in numbers.items():
                estimate = Estimate.of(value)
                if estimate is None:
                    continue
                of_pair = _mapping(differences.get(model))
                change = of_pair if "mean" in of_pair else of_pair.get(str(name))
                measure = found.setdefault((metric, str(name)), Measure(metric, str(name)))
                measure.about = about if isinstance(about, str) else ""
                measure.rows.append(Row(model, estimate, Estimate.of(change)))
    for measure in found.values():
        _place(measure)
    return list(found.values())


def headlines(all: list[Measure], baseline: str, at_most: int = 4) -> list[Headline]:
    """The first number of each metric that both the baseline and another model have."""
    result: dict[str, Headline] = {}
    for measure in all:
        before = next((row for row in measure.rows if row.model == baseline), None)
        after = next((row for row in measure.rows if row.model != baseline), None)
        if before and after and measure.metric not in result:
            result[measure.metric] = Headline(measure, before, after)
    return list(result.values())[:at_most]


def places_for(estimates: list[Estimate]) -> int | None:
    """Decimals that show the narrowest interval with two digits."""
    widths = [e.high - e.low for e in estimates if e.low is not None and e.high is not None and e.high > e.low]
    largest = max((abs(value) for e in estimates for value in e.values), default=0.0)
    if not widths or largest >= 1e7 or min(widths) < 1e-6:
        return None
    return max(0, 1 - math.floor(math.log10(min(widths))))


def _place(measure: Measure) -> None:
    estimates = [estimate for row in measure.rows for estimate in (row.value, row.difference) if estimate]
    places = places_for(estimates)
    for estimate in estimates:
        estimate.places = places
    values = [value for row in measure.rows if row.value for value in row.value.values]
    changes = [value for row in measure.rows if row.difference for value in row.difference.values]
    if values:
        room = (max(values) - min(values)) * 0.12 or abs(values[0]) * 0.12 or 1.0
        for row in measure.rows:
            if row.value:
                row.value.place(min(values) - room, max(values) + room)
    if changes:
        low, high = min(*changes, 0.0), max(*changes, 0.0)
        room = (high - low) * 0.12 or 1.0
        measure.zero = round(100 * (room - low) / (high - low + 2 * room), 2)
        for row in measure.rows:
            if row.difference:
                row.difference.place(low - room, high + room)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[tuple[str, Any]]:
    return [(str(key), item) for key, item in value.items()] if isinstance(value, dict) else []
