"""Metrics that can be merged: the result does not depend on how rows were divided into micro-batches and processes.

A component reports a metric as a `Mean` (over tokens, segments, ...), as a `Most`, or as a plain number, which is a
mean over the given rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mean:
    """A total divided by a count, for example of tokens or segments. Totals and counts add up. With a count of 0 the
    value is NaN.
    """

    total: float
    count: float

    def __init__(self, total: Any, count: Any) -> None:
        """Accept numbers or tensors with one element."""
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
        """Return the metric for no rows."""
        return Mean(0.0, 0.0)


@dataclass(frozen=True)
class Most:
    """The maximum of the observed values."""

    value: float

    def __init__(self, value: Any) -> None:
        """Accept a number or a tensor with one element."""
        object.__setattr__(self, "value", float(value))

    def __float__(self) -> float:
        return self.value

    def merge(self, other: Most) -> Most:
        return Most(max(self.value, other.value))

    def emptied(self) -> Most:
        """Return the metric for no rows."""
        return Most(-math.inf)


Number = Mean | Most | float
Numbers = dict[str, Number]


def as_numbers(metrics: Mapping[str, Number]) -> dict[str, float]:
    """Return the values of metrics as numbers, for logs and summaries."""
    return {name: float(metric) for name, metric in metrics.items()}


def merged(parts: Iterable[tuple[Mapping[str, Number], int]]) -> dict[str, Mean | Most]:
    """Merge the metrics of several parts, each given with its number of rows, into the metrics of the whole.

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
