"""Metrics of micro-batches, summed over an optimizer step or a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fgrl.base.mergeable import merged
from fgrl.types import Mean, Most, Number

Reduce = Callable[[list[float], str], list[float]]
"""Function from numbers of this process, and "sum" or "max", to the result over all processes."""


class Tally:
    """Combination of metrics over micro-batches and over processes."""

    def __init__(self) -> None:
        self._metrics: dict[str, Mean | Most] = {}

    def add(self, metrics: Mapping[str, Number], rows: int) -> None:
        """Add metrics of `rows` rows. For 0 rows only the names are recorded, because all processes must know the same
        names.
        """
        self._metrics = merged([(self._metrics, 1), (metrics, rows)])

    def take(self, reduce: Reduce | None = None) -> dict[str, float]:
        """Return the metrics since the last call. With `reduce`, return those of all processes; then every process must
        call this.

        Metrics without any count are left out.
        """
        means = {name: metric for name, metric in sorted(self._metrics.items()) if isinstance(metric, Mean)}
        greatest = {name: metric.value for name, metric in sorted(self._metrics.items()) if isinstance(metric, Most)}
        self._metrics = {}
        if reduce is not None:
            parts = reduce([*(mean.total for mean in means.values()), *(mean.count for mean in means.values())], "sum")
            totals, counts = parts[: len(means)], parts[len(means) :]
            means = {name: Mean(total, count) for name, total, count in zip(means, totals, counts, strict=True)}
            if greatest:
                greatest = dict(zip(greatest, reduce(list(greatest.values()), "max"), strict=True))
        values = {name: mean.value for name, mean in means.items() if mean.count}
        return values | {name: value for name, value in greatest.items() if value > -math.inf}
