"""Estimates as text and as positions on an axis (in percent of its width)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import Field

from fgrl.measuring.statistics import Estimate
from fgrl.runs.results.text import number

MARGIN = 0.12
"""Share of the range of values that an axis leaves free on each side."""
ADJUSTABLE = 1e7
NARROWEST = 1e-6
"""Limits outside which values do not share a number of decimals: a value of at least `ADJUSTABLE`, or an interval
narrower than `NARROWEST`.
"""


@dataclass(frozen=True)
class Axis:
    """Range of a drawn scale."""

    low: float
    high: float

    def percent(self, value: float | None) -> float:
        """Return the position of a value; the middle for None."""
        share = 0.5 if value is None or self.high <= self.low else (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)


class ShownEstimate(Estimate):
    """Estimate in the form that the page and the tables show."""

    decimals: int | None = Field(None, exclude=True)
    """Number of decimals; None: three significant digits."""
    axis: Axis = Field(Axis(0.0, 0.0), exclude=True)

    @classmethod
    def of(cls, estimate: Estimate, decimals: int | None = None, axis: Axis = Axis(0.0, 0.0)) -> ShownEstimate:
        known = {name: getattr(estimate, name) for name in Estimate.model_fields}
        return cls(**known, decimals=decimals, axis=axis)

    @property
    def count(self) -> int | None:
        """Return the number of values; None if it was not recorded."""
        return None if self.n == 0 and self.mean is not None else self.n

    @property
    def value(self) -> str:
        return self._text(self.mean)

    @property
    def change(self) -> str:
        """Return the value of a difference, with its sign."""
        return ("+" if self.mean is not None and self.mean > 0 else "") + self.value

    @property
    def interval(self) -> str:
        low, high = self.low, self.high
        return "" if low is None or high is None else f"{self._text(low)} to {self._text(high)}"

    @property
    def with_interval(self) -> str:
        """Return the value with its interval: `0.50 [0.41 to 0.59]`."""
        return self.value + (f" [{self.interval}]" if self.interval else "")

    @property
    def change_with_interval(self) -> str:
        """Return the difference with its sign and interval: `+0.38 [0.23 to 0.52]`."""
        return self.change + (f" [{self.interval}]" if self.interval else "")

    @property
    def at(self) -> float:
        return self.axis.percent(self.mean)

    @property
    def left(self) -> float:
        return self.axis.percent(self.mean if self.low is None else self.low)

    @property
    def right(self) -> float:
        return self.axis.percent(self.mean if self.high is None else self.high)

    def _text(self, value: float | None) -> str:
        if value is None or self.decimals is None:
            return number(value)
        return f"{value:,.{self.decimals}f}".replace("-", "−")


def known_values(estimates: Iterable[Estimate]) -> list[float]:
    """Return the means and the ends of intervals."""
    return [value for each in estimates for value in (each.mean, each.low, each.high) if value is not None]


def common_decimals(estimates: Sequence[Estimate]) -> int | None:
    """Return the number of decimals that show the narrowest interval with two digits; None: three significant digits
    for each.
    """
    widths = [each.high - each.low for each in estimates if each.low is not None and each.high is not None]
    widths = [width for width in widths if width > 0]
    largest = max(map(abs, known_values(estimates)), default=0.0)
    if not widths or largest >= ADJUSTABLE or min(widths) < NARROWEST:
        return None
    return max(0, 1 - math.floor(math.log10(min(widths))))


def axis_of(values: Sequence[float]) -> Axis:
    """Return an axis that includes all values."""
    low, high = min(values), max(values)
    room = (high - low) * MARGIN or abs(values[0]) * MARGIN or 1.0
    return Axis(low - room, high + room)
