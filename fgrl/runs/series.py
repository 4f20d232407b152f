"""Metrics in the log of a stage, each over its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.runs.reading import finite, read_lines

NOT_METRICS = ("step", "time")
DRAWABLE = 1e30
"""Absolute value above which a number counts as not finite, because no axis can show it."""


@dataclass
class Series:
    """Metric of a stage over its steps, with only its finite values."""

    name: str
    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    broken: list[float] = field(default_factory=list)
    """Steps at which the value was not a finite number."""
    interval: dict[float, tuple[float, float]] = field(default_factory=dict)
    """Ends of the interval around the value, by step, if the log has them (`NAME/low` and `NAME/high`)."""


def read_series(place: Path, notes: list[str], name: str) -> list[Series]:
    """Return every metric in the log of a stage's folder; an empty list if it has no log. Lines that cannot be read are
    noted.
    """
    log = place / "log.jsonl"
    return _curves(read_lines(log, notes, name)) if log.exists() else []


def _curves(lines: Iterator[dict[str, Any]]) -> list[Series]:
    """Return every metric of a log, in the order of first appearance. A line without a step counts as the next step.
    `null` in a log is a number that is not finite.
    """
    by_name: dict[str, Series] = {}
    last = -1.0
    for line in lines:
        step = finite(line.get("step"))
        last = last + 1 if step is None else step
        for name, value in line.items():
            if name in NOT_METRICS or isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            series = by_name.setdefault(str(name), Series(str(name)))
            number = finite(value)
            if number is None or abs(number) > DRAWABLE:
                series.broken.append(last)
            else:
                series.steps.append(last)
                series.values.append(number)
    return _with_intervals(by_name)


def _with_intervals(by_name: Mapping[str, Series]) -> list[Series]:
    """Return the metrics, with the logged ends of their intervals added to them."""
    ends: set[str] = set()
    for name, series in by_name.items():
        low, high = (by_name.get(f"{name}/{end}") for end in ("low", "high"))
        if low is not None and high is not None:
            upper = dict(zip(high.steps, high.values, strict=True))
            pairs = zip(low.steps, low.values, strict=True)
            series.interval = {step: (value, upper[step]) for step, value in pairs if step in upper}
            ends |= {low.name, high.name}
    return [series for name, series in by_name.items() if name not in ends]
