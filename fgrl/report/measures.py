"""The numbers of an evaluation as the page shows them: values and differences, each on the axis of its number."""

from __future__ import annotations

from dataclasses import dataclass

from fgrl.report.estimates import Axis, ShownEstimate, axis_of, axis_of_changes, common_decimals, known_values
from fgrl.results.numbers import Headline, Measure, ModelNumber


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
        change_axis = axis_of_changes(known)
        zero = change_axis.percent(0.0)
    rows = [_shown(number, decimals, value_axis, change_axis) for number in measure.models]
    return ShownMeasure(str(measure.name), measure.about, rows, zero)


def shown_headline(headline: Headline) -> ShownHeadline:
    measure = shown_measure(headline.measure)
    rows = {row.model: row for row in measure.rows}
    return ShownHeadline(measure, rows[headline.before.model], rows[headline.after.model])


def _shown(number: ModelNumber, decimals: int | None, value_axis: Axis, change_axis: Axis) -> ShownNumber:
    change = number.difference
    return ShownNumber(
        number.model,
        ShownEstimate(number.value, decimals, value_axis),
        None if change is None else ShownEstimate(change, decimals, change_axis),
    )
