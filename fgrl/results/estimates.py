"""Estimates as text and as positions on an axis (percent of its width), and the numbers of an evaluation as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fgrl.evaluation.statistics import Estimate
from fgrl.results.numbers import Measure, ModelNumber
from fgrl.results.text import number

MARGIN = 0.12
"""Share of the values' range that an axis leaves free on each side."""
ADJUSTABLE = 1e7
NARROWEST = 1e-6
"""Values from the first on, and intervals narrower than the second, are not shown with a common number of decimals."""


@dataclass(frozen=True)
class Axis:
    low: float
    high: float

    def percent(self, value: float | None) -> float:
        """The position of a value; the middle for none."""
        share = 0.5 if value is None or self.high <= self.low else (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)


@dataclass(frozen=True)
class ShownEstimate:
    """An estimate as the page and the tables show it."""

    estimate: Estimate
    decimals: int | None = None
    """None: three significant digits."""
    axis: Axis = Axis(0.0, 0.0)

    @property
    def mean(self) -> float | None:
        return self.estimate.mean

    @property
    def n(self) -> int | None:
        """How many values; None where a number without a count was recorded."""
        return None if self.estimate.n == 0 and self.mean is not None else self.estimate.n

    @property
    def note(self) -> str:
        return self.estimate.note or ""

    @property
    def value(self) -> str:
        return self._text(self.mean)

    @property
    def change(self) -> str:
        """The value of a difference, with its sign."""
        return ("+" if self.mean is not None and self.mean > 0 else "") + self.value

    @property
    def interval(self) -> str:
        low, high = self.estimate.low, self.estimate.high
        return "" if low is None or high is None else f"{self._text(low)} to {self._text(high)}"

    @property
    def with_interval(self) -> str:
        """`0.50 [0.41 to 0.59]`."""
        return self.value + (f" [{self.interval}]" if self.interval else "")

    @property
    def changed(self) -> bool | None:
        """Does the interval of a difference exclude zero? None without an interval."""
        low, high = self.estimate.low, self.estimate.high
        return None if low is None or high is None else low > 0 or high < 0

    @property
    def at(self) -> float:
        return self.axis.percent(self.mean)

    @property
    def left(self) -> float:
        return self.axis.percent(self.mean if self.estimate.low is None else self.estimate.low)

    @property
    def right(self) -> float:
        return self.axis.percent(self.mean if self.estimate.high is None else self.estimate.high)

    def _text(self, value: float | None) -> str:
        if value is None or self.decimals is None:
            return number(value)
        return f"{value:,.{self.decimals}f}".replace("-", "−")


def known_values(estimates: Iterable[Estimate]) -> list[float]:
    """Means and ends of intervals."""
    return [value for each in estimates for value in (each.mean, each.low, each.high) if value is not None]


def common_decimals(estimates: Sequence[Estimate]) -> int | None:
    """Decimals that show the narrowest interval with two digits; None: three significant digits for each."""
    widths = [each.high - each.low for each in estimates if each.low is not None and each.high is not None]
    widths = [width for width in widths if width > 0]
    largest = max(map(abs, known_values(estimates)), default=0.0)
    if not widths or largest >= ADJUSTABLE or min(widths) < NARROWEST:
        return None
    return max(0, 1 - math.floor(math.log10(min(widths))))


def axis_of(values: Sequence[float]) -> Axis:
    """An axis that holds all values."""
    low, high = min(values), max(values)
    room = (high - low) * MARGIN or abs(values[0]) * MARGIN or 1.0
    return Axis(low - room, high + room)


# -- the numbers of an evaluation: values and differences, each on the axis of its number ----------------------------------


@dataclass(frozen=True)
class ShownNumber:
    """A number of one model."""

    model: str
    value: ShownEstimate
    difference: ShownEstimate | None


@dataclass(frozen=True)
class ShownMeasure:
    """One number, for every model."""

    name: str
    about: str
    rows: list[ShownNumber]
    zero: float | None
    """Where zero lies on the axis of the differences (percent); None without differences."""


@dataclass(frozen=True)
class ShownHeadline:
    """One number before and after training."""

    measure: ShownMeasure
    before: ShownNumber
    after: ShownNumber


def shown_measure(measure: Measure) -> ShownMeasure:
    values = [number.value for number in measure.models]
    changes = [number.difference for number in measure.models if number.difference is not None]
    decimals = common_decimals([*values, *changes])
    value_axis, change_axis, zero = Axis(0.0, 0.0), Axis(0.0, 0.0), None
    if known := known_values(values):
        value_axis = axis_of(known)
    if known := known_values(changes):
        change_axis = axis_of([*known, 0.0])
        zero = change_axis.percent(0.0)
    rows = [_shown(number, decimals, value_axis, change_axis) for number in measure.models]
    return ShownMeasure(str(measure.name), measure.about, rows, zero)


def headlines(measures: Sequence[Measure], baseline: str, at_most: int = 4) -> list[ShownHeadline]:
    """The first number of each metric that both the baseline and another model have."""
    result: dict[str, ShownHeadline] = {}
    for measure in measures:
        shown = shown_measure(measure)
        before = next((row for row in shown.rows if row.model == baseline), None)
        after = next((row for row in shown.rows if row.model != baseline), None)
        if before and after:
            result.setdefault(measure.name.metric, ShownHeadline(shown, before, after))
    return list(result.values())[:at_most]


def _shown(number: ModelNumber, decimals: int | None, value_axis: Axis, change_axis: Axis) -> ShownNumber:
    change = number.difference
    return ShownNumber(
        number.model,
        ShownEstimate(number.value, decimals, value_axis),
        None if change is None else ShownEstimate(change, decimals, change_axis),
    )
