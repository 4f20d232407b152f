"""Decisions from differences over seeds: a claim holds, or its opposite does, or two sides are equal. Otherwise, the
number of seeds that a decision needs.

A difference is significant if p, corrected for all lines (Holm 1979), is below 0.05. Two sides are equal if the 90%
interval of their difference is inside a margin (two one-sided tests at 5%, Schuirmann 1987). Margins are fixed before
the runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fgrl_benchmark.comparisons import power_of

LEVEL = 0.05
POWER = 0.8
MOST = 1000
"""Maximum number of seeds; a higher number is not computed."""


@dataclass(frozen=True)
class Change:
    """Differences over seeds: their mean, standard deviation and number."""

    mean: float
    spread: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Change:
        return cls(statistics.mean(values), statistics.stdev(values), len(values))

    @classmethod
    def of_interval(cls, mean: float, low: float, high: float, seeds: int) -> Change:
        """Return the differences with this 95% interval (Student's t)."""
        from scipy.stats import t

        return cls(mean, (high - low) / 2 * math.sqrt(seeds) / float(t.ppf(0.975, seeds - 1)), seeds)

    @property
    def error(self) -> float:
        return self.spread / math.sqrt(self.seeds)

    @property
    def p(self) -> float:
        """Two-sided p-value of a paired t-test; 1 if no run differs."""
        from scipy.stats import t

        if self.spread == 0:
            return float(self.mean == 0)
        return float(2 * t.sf(abs(self.mean) / self.error, self.seeds - 1))

    def is_equal(self, margin: float) -> bool:
        """True if the 90% interval is inside the margin."""
        from scipy.stats import t

        return abs(self.mean) + float(t.ppf(1 - LEVEL, self.seeds - 1)) * self.error < margin


def verdict(change: Change, margin: float | None, p: float, lines: int) -> tuple[str, int | None]:
    """Return the decision. If there is none, return "needs" and the required number of seeds, None if it is above
    `MOST`.

    margin: None if there is none, so that no difference can be equal; p: p-value corrected for the number of `lines`.
    """
    if p < LEVEL:
        return "holds" if change.mean > 0 else "the opposite", None
    if margin is not None and change.is_equal(margin):
        return "equal", None
    return "needs", seeds_to_decide(change.mean, change.spread, margin, lines)


def seeds_to_decide(mean: float, spread: float, margin: float | None, lines: int) -> int | None:
    """Return the smallest number of seeds that decides with probability 0.8, if mean and spread stay unchanged. It
    finds either a difference at level 0.05 / lines, the level of Holm's correction for the first line, or equality.
    None if it is above `MOST`.
    """

    def enough(seeds: int) -> bool:
        told = spread == 0 or power_of(abs(mean) / spread, seeds, LEVEL / lines) >= POWER
        return told or (margin is not None and power_of_equality(mean, spread, margin, seeds) >= POWER)

    return fewest(enough)


def planned_seeds(spread: float, margin: float, lines: int) -> int | None:
    """Return the number of seeds of a line from the spread of its pilot alone. With probability 0.8, sides without a
    difference are found equal, and a difference of twice the margin is found at level 0.05 / lines.
    """

    def enough(seeds: int) -> bool:
        return spread == 0 or (
            power_of_equality(0.0, spread, margin, seeds) >= POWER
            and power_of(2 * margin / spread, seeds, LEVEL / lines) >= POWER
        )

    return fewest(enough)


def fewest(enough: Callable[[int], bool]) -> int | None:
    """Return the smallest sufficient number from 2 to `MOST`, by bisection: a higher number is always sufficient,
    too.
    """
    low, high = 2, MOST
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def power_of_equality(mean: float, spread: float, margin: float, seeds: int) -> float:
    """Return the probability that the 90% interval of this number of differences is inside the margin. The chi-squared
    distribution of their variance is integrated in 400 parts of equal probability.
    """
    import numpy as np
    from scipy.stats import chi2, norm, t

    if spread == 0:
        return float(abs(mean) < margin)
    freedom = seeds - 1
    parts = (np.arange(400) + 0.5) / 400
    error = spread / math.sqrt(seeds)
    room = margin - float(t.ppf(1 - LEVEL, freedom)) * error * np.sqrt(chi2.ppf(parts, freedom) / freedom)
    inside = norm.cdf((room - mean) / error) - norm.cdf((-room - mean) / error)
    return float(np.clip(inside, 0.0, None).mean())
