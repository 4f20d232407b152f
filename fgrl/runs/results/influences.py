"""Relation between the parameters of a sweep and its number: correlations, and importances of a random forest.

These are the two numbers that W&B draws (RLA, Figure 5): Pearson's correlation of a parameter with the number, and the
parameter's share of the variance explained by a forest of regression trees. They describe the points that have run, and
do not show causes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fgrl.runs.results.sweep_records import SweepRecord, mean_of

LEAST = 8
"""Minimum number of points for which influences are computed."""


class Influence(NamedTuple):
    """Influence of one parameter over the points of a sweep."""

    name: str
    correlation: float
    importance: float
    """Share from 0 to 1; the shares of all parameters add up to 1."""


def influences(record: SweepRecord) -> list[Influence]:
    """Return the influences of the numeric parameters that vary, and of the time, the most important first; empty for
    fewer than `LEAST` finished points, and if all have the same number.
    """
    points = record.ranked
    numbers = np.array([mean_of([point]) for point in points])
    columns: dict[str, list[Any]] = {
        name: [point.parameters.get(name) for point in points] for name in record.varied if name != "seed"
    }
    columns["seconds"] = [point.seconds for point in points]
    numeric = {name: own for name, own in columns.items() if {*map(type, own)} <= {int, float} and len(set(own)) > 1}
    if len(points) < LEAST or np.ptp(numbers) == 0 or not numeric:
        return []
    from sklearn.ensemble import RandomForestRegressor  # slow to import

    table = np.array([list(map(float, values)) for values in numeric.values()]).T
    forest = RandomForestRegressor(n_estimators=200, random_state=0).fit(table, numbers)
    found = [
        Influence(name, float(np.corrcoef(table[:, place], numbers)[0, 1]), float(forest.feature_importances_[place]))
        for place, name in enumerate(numeric)
    ]
    return sorted(found, key=lambda each: -each.importance)
