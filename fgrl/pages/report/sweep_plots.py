"""The points of a sweep as plots: a heat map over two parameters, or the number over each of them.

Every text of a plot comes from data, and is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.base.visible import visible
from fgrl.pages.report.plots import STAND_INS, blank_axes, limits, on_page, page_axes
from fgrl.runs.results.sweep_records import as_word
from fgrl.runs.results.text import number

DECADES = 30.0
"""Ratio of the largest to the smallest value above which positive values get a logarithmic axis."""
MOST_CELLS = 14
"""Maximum number of rows and of columns of a heat map."""
LONGEST = 22
"""Maximum number of letters of a value beside a plot."""
LETTER = 7
"""Width of a letter in pixels."""


@dataclass(frozen=True)
class Shown:
    """Setting of a sweep."""

    values: tuple[Any, ...]
    """Values of the varied parameters."""
    mean: float
    low: float | None
    high: float | None
    best: bool


@on_page
def response(shown: Sequence[Shown], place: int, name: str, *, width: int = 620, height: int = 240) -> tuple[Any, str]:
    """Return a plot of the number over the parameter at `place`, with intervals: on a numeric axis, or over words side
    by side.
    """
    values = _ordered([each.values[place] for each in shown])
    numeric = all(map(_is_number, values))
    ends = [end for each in shown for end in (each.mean, each.low, each.high) if end is not None]
    log = numeric and min(values) > 0 and max(values) / min(values) >= DECADES
    across = limits(values if numeric else range(len(values)))
    axes = page_axes(width, height, (values[0] / 1.3, values[-1] * 1.3) if log else across, limits(ends), log=log)
    axes.set_title(_label(name), loc="left", fontsize=11, pad=3, color=STAND_INS["muted"])
    words = [as_word(value) for value in values]
    if not numeric:
        axes.set_xticks(range(len(words)), [_label(word, max(1, width // len(words) // LETTER)) for word in words])
    for each in shown:
        at = each.values[place] if numeric else words.index(as_word(each.values[place]))
        if each.low is not None and each.high is not None:
            axes.vlines(at, each.low, each.high, color=STAND_INS["accent"], alpha=0.55, lw=1.5)
        axes.plot([at], [each.mean], "o", ms=4, mew=0, color=STAND_INS["accent"], gid="dots")
        if each.best:
            axes.plot([at], [each.mean], "o", ms=10, mfc="none", mec=STAND_INS["s1"], mew=2, gid="best")
    return axes, f"the number over {name}, {len(shown)} settings"


def fits_heat_map(shown: Sequence[Shown]) -> bool:
    """Return True if the settings of two parameters fill most of a table of moderate size."""
    rows, columns = ({as_word(each.values[place]) for each in shown} for place in (0, 1))
    return len(rows) <= MOST_CELLS and len(columns) <= MOST_CELLS and len(rows) * len(columns) <= 2 * len(shown)


@on_page
def heat_map(shown: Sequence[Shown], names: tuple[str, str], *, better: str) -> tuple[Any, str]:
    """Return a plot with a cell for each combination of two parameters: the first downwards, the second across. Better
    cells have stronger colours.
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


def _label(value: Any, longest: int = LONGEST) -> str:
    text = visible(as_word(value))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _goodness(each: Shown, shown: Sequence[Shown], better: str) -> float:
    """Return a number from 0 for the worst of the settings to 1 for the best."""
    low, high = min(other.mean for other in shown), max(other.mean for other in shown)
    share = (each.mean - low) / (high - low) if high > low else 0.5
    return share if better == "maximize" else 1 - share


def _ordered(values: Sequence[Any]) -> list[Any]:
    """Return the different values: numbers by size, others in the given order."""
    different = list({as_word(value): value for value in values}.values())
    return sorted(different) if all(map(_is_number, different)) else different


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
