"""Logged metrics of a stage as curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fgrl.results.reading import finite

NOT_METRICS = ("step", "time")
DRAWABLE = 1e30
"""Values beyond this size count as not finite: no axis can show them."""


@dataclass
class Series:
    """One metric of a stage over its steps; only finite values are in it."""

    name: str
    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    broken: list[float] = field(default_factory=list)
    """Steps at which the value was not a finite number."""


def curves(lines: Iterator[dict[str, Any]]) -> list[Series]:
    """Every metric of a log, in the order of first appearance. A line without a step counts as the next step.
    `null` is how a log writes a number that is not finite."""
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
    return list(by_name.values())
