"""The points of a sweep as plots: values over one parameter, a heat map over two, parallel coordinates over more.

Every text of a plot comes from data, and is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.base.visible import visible
from fgrl.pages.report.plots import STAND_INS, blank_axes, limits, on_page, page_axes
from fgrl.runs.results.sweep_records import as_word
from fgrl.runs.results.text import number

DECADES = 30.0
"""Values that differ by more than this factor, all above 0, get a logarithmic axis."""
MOST_CELLS = 14
"""Rows and columns of a heat map."""
LONGEST = 22
"""Letters of a value beside a plot."""
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


@on_page
def response(shown: Sequence[Shown], name: str, *, width: int = 620, height: int = 240) -> tuple[Any, str]:
    """Return the number over one numeric parameter, with intervals."""
    across = [float(each.values[0]) for each in shown]
    ends = [end for each in shown for end in (each.mean, each.low, each.high) if end is not None]
    log = _is_log(across)
    axes = page_axes(
        width, height, (min(across) / 1.3, max(across) * 1.3) if log else limits(across), limits(ends), log=log
    )
    for each, place in zip(shown, across, strict=True):
        if each.low is not None and each.high is not None:
            axes.vlines(place, each.low, each.high, color=STAND_INS["accent"], alpha=0.55, lw=1.5)
        axes.plot([place], [each.mean], "o", ms=4, mew=0, color=STAND_INS["accent"], gid="dots")
        if each.best:
            axes.plot([place], [each.mean], "o", ms=10, mfc="none", mec=STAND_INS["s1"], mew=2, gid="best")
    return axes, f"the number over {name}, {len(shown)} settings"


def fits_heat_map(shown: Sequence[Shown]) -> bool:
    """Return True if the settings of two parameters fill most of a table of moderate size."""
    rows, columns = ({as_word(each.values[place]) for each in shown} for place in (0, 1))
    return len(rows) <= MOST_CELLS and len(columns) <= MOST_CELLS and len(rows) * len(columns) <= 2 * len(shown)


@on_page
def heat_map(shown: Sequence[Shown], names: tuple[str, str], *, better: str) -> tuple[Any, str]:
    """Return a cell for each combination of two parameters: the first downwards, the second across. The stronger a
    cell, the better.
    """
    rows, columns = _ordered([each.values[0] for each in shown]), _ordered([each.values[1] for each in shown])
    by_cell = {(as_word(each.values[0]), as_word(each.values[1])): each for each in shown}
    letters = max(len(text) for value in (*columns, *rows) for text in (*map(_interval, shown), _label(value)))
    axes = blank_axes((len(columns), len(rows)), (14 + LETTER * max(letters, 8), 44), (24 + LETTER * letters, 36))
    for row, value in enumerate(rows):
        for column, other in enumerate(columns):
            each = by_cell.get((as_word(value), as_word(other)))
            # text on the strongest keeps a contrast of 4.5
            colour, shade = ("accent", 0.08 + 0.44 * _goodness(each, shown, better)) if each else ("grid", 1.0)
            style = {"facecolor": STAND_INS[colour], "alpha": shade, "linewidth": 0, "gid": "cell"}
            axes.bar(column, -0.94, 0.98, row + 0.47, **style)
            if each is not None and each.best:
                axes.bar(column, -0.94, 0.98, row + 0.47, fc="none", ec=STAND_INS["s1"], lw=2.5, gid="best")
            texts = [number(each.mean), *filter(None, [_interval(each)])] if each else ["–"]
            for line, text in enumerate(texts):
                at = row + 0.35 * (line - (len(texts) - 1) / 2)
                axes.text(column, at, text, ha="center", va="center", color=STAND_INS["ink"], fontsize=12 - line)
    axes.set_xticks(range(len(columns)), map(_label, columns))
    axes.set_yticks(range(len(rows)), map(_label, rows))
    axes.text(-0.5, -0.55, f"{_label(names[0])} ↓ ", ha="right", va="bottom", color=STAND_INS["ink"], fontsize=12)
    axes.set_title(_label(names[1]), loc="left", color=STAND_INS["ink"], fontsize=12)
    return axes, f"heat map of {names[0]} and {names[1]}, {len(shown)} settings"


def _interval(each: Shown) -> str:
    return "" if each.low is None or each.high is None else f"{number(each.low)} to {number(each.high)}"


@on_page
def parallel(shown: Sequence[Shown], names: Sequence[str], metric: str, *, better: str) -> tuple[Any, str]:
    """Return an axis for each parameter and one for the number, and a line for each setting; the stronger, the better."""
    rows = [[*each.values, each.mean] for each in shown]
    axes = blank_axes((len(names) + 1, 1), (24 + LETTER * LONGEST, 260), (0, 36))
    heights = [_heights(column) for column in zip(*rows, strict=True)]
    for place, (name, known) in enumerate(zip([*names, metric], heights, strict=True)):
        axes.vlines(place, -0.4, 0.4, color=STAND_INS["line"], lw=1, gid="axis")
        axes.text(place, -0.5, _label(name), ha="center", color=STAND_INS["ink"], fontsize=12)
        ends = sorted(known.items(), key=lambda at: at[1])
        for text, height in ends if len(known) <= 5 else ends[:: len(ends) - 1]:
            axes.text(place + 0.03, height, _label(text), va="center", color=STAND_INS["ink"], fontsize=12, gid="tick")
    for each, row in sorted(
        zip(shown, rows, strict=True), key=lambda pair: (pair[0].best, _goodness(pair[0], shown, better))
    ):
        shade = 0.12 + 0.6 * _goodness(each, shown, better) ** 2
        colour, style = (
            ("s1", {"lw": 3, "gid": "best"})
            if each.best
            else ("accent", {"lw": 1.75, "alpha": shade, "gid": "setting"})
        )
        spots = [known[as_word(value)] for known, value in zip(heights, row, strict=True)]
        axes.plot(range(len(row)), spots, color=STAND_INS[colour], **style)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes, f"parallel coordinates of {len(shown)} settings over {', '.join(names)}"


def _heights(values: Sequence[Any]) -> dict[str, float]:
    """Return the place of each value on an upright axis from 0.4 to -0.4, by its text: numbers by size."""
    different = _ordered(values)
    numeric = all(map(_is_number, different))
    scaled = (
        [math.log(value) if _is_log(different) else float(value) for value in different]
        if numeric
        else range(len(different))
    )
    low, room = min(scaled), (max(scaled) - min(scaled)) or 1.0
    return {as_word(value): 0.4 - 0.8 * (at - low) / room for value, at in zip(different, scaled, strict=True)}


def _label(value: Any) -> str:
    text = visible(as_word(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


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
