"""The points of a sweep as plots: values over one parameter, a heat map over two, parallel coordinates over more.

Every text of a plot comes from data, and is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from fgrl.report.plots import Frame, _dot, _frame, _limits
from fgrl.results.sweep_records import as_word
from fgrl.results.text import number

DECADES = 30.0
"""Values that differ by more than this factor, all above 0, get a logarithmic axis."""
MOST_CELLS = 14
"""Rows and columns of a heat map."""
LONGEST = 22
"""Letters of a value beside a plot; the whole one is shown while the mouse is over it."""

LETTER = 7
"""Pixels of a letter."""


@dataclass(frozen=True)
class Shown:
    """A setting of a sweep."""

    values: tuple[Any, ...]
    """Of the varied parameters."""
    mean: float
    low: float | None
    high: float | None
    best: bool
    title: str
    """What is shown while the mouse is over it."""


def response(shown: Sequence[Shown], name: str, *, width: int = 620, height: int = 240) -> Markup:
    """Return the number over one numeric parameter, with intervals."""
    across = [float(each.values[0]) for each in shown]
    ends = [end for each in shown for end in (each.mean, each.low, each.high) if end is not None]
    log = _is_log(across)
    limits = (min(across) / 1.3, max(across) * 1.3) if log else _limits(across)
    frame = _frame(width, height, limits, _limits(ends), log_x=log)
    marks = []
    for each, place in zip(shown, across, strict=True):
        x, y = frame.at(place, each.mean)
        inside = _bar(frame, place, each) + _dot(x, y)
        inside += f'<circle class="best" cx="{x:.1f}" cy="{y:.1f}" r="5"/>' if each.best else ""
        marks.append(f"<g><title>{escape(each.title)}</title>{inside}</g>")
    return frame.svg(f"the number over {name}, {len(shown)} settings", marks)


def _bar(frame: Frame, place: float, each: Shown) -> str:
    if each.low is None or each.high is None:
        return ""
    (x, low), (_x, high) = frame.at(place, each.low), frame.at(place, each.high)
    return f'<path class="spread" d="M{x:.1f} {low:.1f}V{high:.1f}"/>'


def fits_heat_map(shown: Sequence[Shown]) -> bool:
    """Return True if the settings of two parameters fill most of a table of moderate size."""
    rows, columns = ({as_word(each.values[place]) for each in shown} for place in (0, 1))
    return len(rows) <= MOST_CELLS and len(columns) <= MOST_CELLS and len(rows) * len(columns) <= 2 * len(shown)


def heat_map(shown: Sequence[Shown], names: tuple[str, str], *, better: str) -> Markup:
    """Return a cell for each combination of two parameters: the first downwards, the second across. The stronger a
    cell, the better.
    """
    rows, columns = _ordered([each.values[0] for each in shown]), _ordered([each.values[1] for each in shown])
    by_cell = {(as_word(each.values[0]), as_word(each.values[1])): each for each in shown}
    longest = max(len(as_word(value)) for value in rows)
    inside = max(len(_interval(each)) for each in shown)
    left, top, cell_height = 24 + LETTER * min(max(longest, 5), LONGEST), 36, 44
    cell_width = max(72, 14 + LETTER * max(inside, *(min(len(as_word(value)), LONGEST) for value in columns)))
    width, height = left + cell_width * len(columns) + 2, top + cell_height * len(rows) + 4
    parts = [
        f'<text class="name" x="{left - 8}" y="{top - 8}" text-anchor="end">{escape(names[0])}</text>',
        f'<text class="name" x="{left}" y="12">{escape(names[1])}</text>',
    ]
    for column, value in enumerate(columns):
        x = left + cell_width * (column + 0.5)
        parts.append(f'<text x="{x:.1f}" y="{top - 8}" text-anchor="middle">{_label(value)}</text>')
    for row, value in enumerate(rows):
        y = top + cell_height * row
        parts.append(f'<text x="{left - 8}" y="{y + 26}" text-anchor="end">{_label(value)}</text>')
        for column, other in enumerate(columns):
            each = by_cell.get((as_word(value), as_word(other)))
            parts.append(_cell(each, shown, left + cell_width * column, y, cell_width, cell_height, better=better))
    label = f"heat map of {names[0]} and {names[1]}, {len(shown)} settings"
    return _svg(width, height, label, parts)


def _cell(
    each: Shown | None, shown: Sequence[Shown], x: float, y: float, width: float, height: float, *, better: str
) -> str:
    size = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{height - 2:.1f}"'
    middle = f'x="{x + width / 2:.1f}" text-anchor="middle"'
    if each is None:
        return f'<rect class="cell none" {size}/><text {middle} y="{y + height / 2 + 4:.1f}">–</text>'
    shade = 0.08 + 0.44 * _goodness(each, shown, better)  # text on it keeps a contrast of 4.5
    second = _interval(each)
    texts = f'<text class="value" {middle} y="{y + (19 if second else 27):.1f}">{number(each.mean)}</text>'
    texts += f'<text class="ends" {middle} y="{y + 35:.1f}">{second}</text>' if second else ""
    best = f'<rect class="cell best" {size}/>' if each.best else ""
    return (
        f'<g><title>{escape(each.title)}</title><rect class="cell" {size} fill-opacity="{shade:.2f}"/>{best}{texts}</g>'
    )


def _interval(each: Shown) -> str:
    return "" if each.low is None or each.high is None else f"{number(each.low)} to {number(each.high)}"


def parallel(shown: Sequence[Shown], names: Sequence[str], metric: str, *, better: str) -> Markup:
    """Return an axis for each parameter and one for the number, and a line for each setting; the stronger, the better."""
    top, bottom, left, gap = 34, 26, 60, 24 + LETTER * LONGEST
    height = 300
    width = 2 * left + gap * len(names)
    axes = [_Axis.of([each.values[place] for each in shown], top, height - bottom) for place in range(len(names))]
    axes.append(_Axis.of([each.mean for each in shown], top, height - bottom))
    parts: list[str] = []
    labels: list[str] = []
    for place, (axis, name) in enumerate(zip(axes, [*names, metric], strict=True)):
        x = left + gap * place
        parts.append(f'<path class="axis" d="M{x} {top}V{height - bottom}"/>')
        parts.append(
            f'<text class="name" x="{x}" y="14" text-anchor="middle"><title>{escape(name)}</title>{_label(name)}</text>'
        )
        labels += [f'<text class="tick" x="{x + 6}" y="{y + 3:.1f}">{_label(text)}</text>' for text, y in axis.labels]
    for each in sorted(shown, key=lambda each: (each.best, _goodness(each, shown, better))):
        spots = [axis.at(value) for axis, value in zip(axes, [*each.values, each.mean], strict=True)]
        line = "L".join(f"{left + gap * place} {y:.1f}" for place, y in enumerate(spots))
        shade = 0.12 + 0.6 * _goodness(each, shown, better) ** 2
        kind = "setting best" if each.best else f'setting" stroke-opacity="{shade:.2f}'
        parts.append(f'<g><title>{escape(each.title)}</title><path class="{kind}" d="M{line}"/></g>')
    return _svg(
        width, height, f"parallel coordinates of {len(shown)} settings over {', '.join(names)}", [*parts, *labels]
    )


@dataclass(frozen=True)
class _Axis:
    """An upright axis of numbers or of other values."""

    places: dict[str, float]
    """Pixels from the top, by the value's text."""
    labels: list[tuple[str, float]]

    @classmethod
    def of(cls, values: Sequence[Any], top: float, bottom: float) -> _Axis:
        if all(_is_number(value) for value in values):
            log = _is_log(values)
            scaled = {as_word(value): math.log(value) if log else float(value) for value in values}
            low, high = min(scaled.values()), max(scaled.values())
            room = high - low or 1.0
            places = {text: bottom - (bottom - top) * (value - low) / room for text, value in scaled.items()}
            ends = sorted({float(value) for value in values})
            shown = ends if len(ends) <= 5 else [ends[0], ends[-1]]
            by_number = {float(value): places[as_word(value)] for value in values}
            return cls(places, [(f"{value:.4g}", by_number[value]) for value in shown])
        ordered = _ordered(values)
        step = (bottom - top) / max(1, len(ordered) - 1)
        places = {as_word(value): bottom - step * place for place, value in enumerate(ordered)}
        return cls(places, list(places.items()))

    def at(self, value: Any) -> float:
        return self.places[as_word(value)]


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> Markup:
    head = f'<svg class="plot" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{head}{''.join(parts)}</svg>")  # parts: numbers, classes and escaped texts


def _label(value: Any) -> Markup:
    text = as_word(value)
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def _goodness(each: Shown, shown: Sequence[Shown], better: str) -> float:
    """Return 0 for the worst of the settings and 1 for the best."""
    low, high = min(other.mean for other in shown), max(other.mean for other in shown)
    share = (each.mean - low) / (high - low) if high > low else 0.5
    return share if better == "maximize" else 1 - share


def _ordered(values: Sequence[Any]) -> list[Any]:
    """Return different values: numbers by size, others as they come."""
    different = list({as_word(value): value for value in values}.values())
    return sorted(different) if all(map(_is_number, different)) else different


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_log(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= DECADES


__all__ = ["Shown", "fits_heat_map", "heat_map", "parallel", "response"]
