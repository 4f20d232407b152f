"""Metrics that can be merged: the metric of a whole does not depend on how it was cut into micro-batches and processes.

A component reports a metric as a `Mean` (over tokens, segments, ...), as a `Most`, or as a plain number, which is a
mean over the rows that were given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mean:
    """A total over a count, for example of tokens or segments. Totals and counts add up; a count of 0 is NaN."""

    total: float
    count: float

    def __init__(self, total: Any, count: Any) -> None:
        """Numbers or tensors of one element."""
        object.__setattr__(self, "total", float(total))
        object.__setattr__(self, "count", float(count))

    @property
    def value(self) -> float:
        return self.total / self.count if self.count else math.nan

    def __float__(self) -> float:
        return self.value

    def merge(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)

    def emptied(self) -> Mean:
        """Return the metric of no rows."""
        return Mean(0.0, 0.0)


@dataclass(frozen=True)
class Most:
    """The greatest value that was seen."""

    value: float

    def __init__(self, value: Any) -> None:
        """Add a number or a tensor of one element."""
        object.__setattr__(self, "value", float(value))

    def __float__(self) -> float:
        return self.value

    def merge(self, other: Most) -> Most:
        return Most(max(self.value, other.value))

    def emptied(self) -> Most:
        """Return the metric of no rows."""
        return Most(-math.inf)


Number = Mean | Most | float
Numbers = dict[str, Number]


def as_numbers(metrics: Mapping[str, Number]) -> dict[str, float]:
    """Return the values of metrics, for logs and summaries."""
    return {name: float(metric) for name, metric in metrics.items()}


def merged(parts: Iterable[tuple[Mapping[str, Number], int]]) -> dict[str, Mean | Most]:
    """Metrics of several parts, each with its number of rows, as those of the whole.

    A part of 0 rows contributes the names of its metrics only. Raises ValueError when a metric is a `Mean` in one part
    and a `Most` in another.
    """
    whole: dict[str, Mean | Most] = {}
    for metrics, rows in parts:
        for name, metric in metrics.items():
            part = metric if isinstance(metric, Mean | Most) else Mean(float(metric) * rows, rows)
            known = whole.get(name, part.emptied())
            if type(known) is not type(part):
                raise ValueError(f"the metric {name} is a {type(known).__name__} and a {type(part).__name__}")
            whole[name] = known.merge(part if rows else part.emptied())  # type: ignore[arg-type]
    return whole
