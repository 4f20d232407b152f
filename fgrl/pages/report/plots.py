"""Plots by matplotlib: as SVG that follows the page's colours, and as files for papers and slides.

A plot of a page has the names of the page's colours (`var(--accent)`) in place of colours, so that it fits the dark and
the light style. It has no scripts, no ids, no references and no styles, and texts stay texts.
"""

from __future__ import annotations

import functools
import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

from fgrl.base import lazy
from fgrl.base.files import atomically
from fgrl.runs.results.text import number
from fgrl.runs.series import Series

matplotlib = lazy.load("matplotlib")
figures = lazy.load("matplotlib.figure")
tickers = lazy.load("matplotlib.ticker")
transforms = lazy.load("matplotlib.transforms")
agg_backend = lazy.load("matplotlib.backends.backend_agg")

REPRODUCIBLE_SVG = {"svg.fonttype": "none", "svg.hashsalt": "fgrl"}
"""Settings of matplotlib: text stays text, and the same plot is the same bytes."""
ON_PAGE = REPRODUCIBLE_SVG | {
    "text.parse_math": False, "lines.scale_dashes": False, "path.simplify_threshold": 1.0, "axes.formatter.useoffset": False,
}  # fmt: skip
QUIET = {".svg": ("Date", "Creator"), ".png": ("Software",), ".pdf": ("CreationDate", "Creator", "Producer")}
"""Suffixes of printed figures, and metadata that is not written into them."""
COLOURS = ("#1f5fa8", "#c8641b", "#2f8f5b", "#8d4a9e", "#b3282d", "#5d6b78", "#a3841a", "#1a8a94")
INK, MUTED, GRID = "#1d1c1a", "#67635c", "#ece9e2"
"""Colours of printed figures."""
NAMES = ("ink", "muted", "grid", "line", "accent", "raw", "bg", "warn", "bad", *(f"s{place}" for place in range(8)))
STAND_INS = {name: f"#0000{place:02x}" for place, name in enumerate(NAMES, 1)}
"""Colours that stand for variables of the page's stylesheet while matplotlib draws."""
DASHES = (
    ((), 1.75), ((7, 3), 1.75), ((2, 3), 1.75), ((8, 3, 2, 3), 1.75), ((), 3), ((9, 5), 3), ((1, 5), 3), ((10, 5, 1, 5), 3)
)  # fmt: skip
"""Dashes and widths of compared lines, which differ in addition to the colours."""
LEFT, RIGHT, TOP, BOTTOM = 42, 6, 14, 20
"""Margins in pixels."""
SMOOTH_FROM = 20
"""Minimum number of values of a curve that is smoothed. Shorter curves are drawn unchanged."""
HALF_LIFE = 30
"""Number of half-lives of the moving average in a curve: it forgets half in 1/30 of the curve."""
MOST_SERIES = len(DASHES)
"""Maximum number of series in one plot, each with its own colour and dashes."""
VARIABLES = {colour: name for name, colour in STAND_INS.items()}
_one_at_a_time = threading.Lock()
_NAMED, _FRACTION = re.compile("#0000[0-9a-f]{2}"), re.compile(r"\d+\.\d+")


def page_axes(width: float, height: float, x: tuple[float, float], y: tuple[float, float], *, log: bool = False) -> Any:
    """Return the axes of a plot for a page, in pixels. log: x is on a logarithmic axis."""
    figure = figures.Figure(figsize=(width / 72, height / 72), facecolor="none")
    axes = figure.add_axes((LEFT / width, BOTTOM / height, 1 - (LEFT + RIGHT) / width, 1 - (TOP + BOTTOM) / height))
    axes.set_facecolor("none")
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set(color=STAND_INS["line"], gid="axis")
    if log:
        axes.set_xscale("log")
        decades = math.log10(x[1] / x[0])
        factors = (1, 2, 5) if decades < 1.7 else (1, 3) if decades < 2.2 else (1,)
        axes.xaxis.set_major_locator(tickers.LogLocator(subs=factors, numticks=99))
        axes.xaxis.set_minor_locator(tickers.NullLocator())
        axes.xaxis.set_major_formatter(tickers.FuncFormatter(lambda tick, _place: f"{tick:g}"))
    axes.yaxis.set_major_locator(tickers.MaxNLocator(max(4, height // 45), steps=[1, 2, 5, 10]))
    _set_ends(axes, x, y)
    axes.grid(axis="y", color=STAND_INS["grid"], lw=1, gid="grid")
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=10, labelcolor=STAND_INS["muted"])
    return axes


def _set_ends(axes: Any, x: tuple[float, float], y: tuple[float, float]) -> None:
    if axes.get_xscale() == "linear":
        x = transforms.nonsingular(*x, 0.05)
        axes.xaxis.set_major_locator(tickers.MaxNLocator(4, integer=x[1] - x[0] >= 1, steps=[1, 2, 5, 10]))
    axes.set(xlim=x, ylim=transforms.nonsingular(*y, 0.05))


@functools.cache
def _curve_axes(width: int, height: int) -> Any:
    """Return axes that are reused: creating axes and their ticks is half of the work of a small plot."""
    return page_axes(width, height, (0.0, 1.0), (0.0, 1.0))


def blank_axes(cells: tuple[int, int], size: tuple[float, float], margins: tuple[float, float]) -> Any:
    """Return the axes of a table of cells with texts above and on the left: (columns, rows) of `size` pixels. The
    middle of the first cell is (0, 0), and rows go down.
    """
    (columns, rows), (left, top) = cells, margins
    width, height = left + columns * size[0] + 2, top + rows * size[1] + 4
    figure = figures.Figure(figsize=(width / 72, height / 72), facecolor="none")
    axes = figure.add_axes((left / width, 4 / height, 1 - (left + 2) / width, 1 - (top + 4) / height), frameon=False)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.tick_params(length=0, labelsize=12, labelcolor=STAND_INS["muted"], labeltop=True, labelbottom=False)
    return axes


def on_page(draw: Callable[..., tuple[Any, str]]) -> Callable[..., Markup]:
    """Return a function that makes SVG of the axes that `draw` returns, with the text for screen readers that it
    returns.
    """

    @functools.wraps(draw)
    def drawn(*values: Any, **options: Any) -> Markup:
        file = io.StringIO()
        with _one_at_a_time, matplotlib.rc_context(ON_PAGE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a character that matplotlib's font lacks; the page has fonts of its own
            axes, label = draw(*values, **options)
            axes.figure.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        width, height = axes.figure.get_size_inches() * 72
        return _cleaned(ElementTree.fromstring(file.getvalue()), width, height, label)

    return drawn


def _cleaned(root: ElementTree.Element, width: float, height: float, label: str) -> Markup:
    """Return matplotlib's drawing without definitions, references and styles, in the colours of the page."""
    shapes = {each.get("id"): each.get("d", "") for each in root.iter() if each.tag.endswith("}path")}
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag.endswith("}defs")]:
            parent.remove(child)
    for each in root.iter():
        given, each.tag, each.attrib, each.tail = each.attrib, each.tag.partition("}")[2], {}, None
        if each.tag == "use":  # a marker
            each.tag, place = "path", f"translate({given.pop('x')} {given.pop('y')})"
            given |= {"d": shapes[given.pop("{http://www.w3.org/1999/xlink}href")[1:]], "transform": place}
        rules = dict(rule.split(": ", 1) for rule in given.pop("style", "").split("; ") if rule)
        for name, value in rules.items():
            if name not in ("font", "font-family"):
                each.set(name, _NAMED.sub(lambda found: f"var(--{VARIABLES[found[0]]})", value))
        for name, value in given.items():
            if name in ("d", "x", "y", "transform") and not value.startswith("rotate(-0 "):
                each.set(name, " ".join(_FRACTION.sub(lambda found: f"{float(found[0]):.1f}", value).split()))
        if re.fullmatch("[a-z]+", given.get("id", "")):  # named here; matplotlib's own have numbers
            each.set("class", given["id"])
        if each.tag != "text":
            each.text = None
    root.attrib = {
        "class": "plot", "viewBox": f"0 0 {width:.0f} {height:.0f}", "width": f"{width:.0f}", "role": "img", "aria-label": label
    }  # fmt: skip
    return Markup(ElementTree.tostring(root, "unicode"))


def printed_figure(height: float, x_label: str, y_label: str) -> tuple[Any, Any]:
    """Return a figure for papers and slides, on white, and its axes."""
    figure = figures.Figure(figsize=(7.6, height), layout="constrained", facecolor="white")
    agg_backend.FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=9)
    axes.set_xlabel(x_label, color=INK, fontsize=10)
    axes.set_ylabel(y_label, color=INK, fontsize=10)
    return figure, axes


def save_figure(figure: Any, target: Path) -> list[Path]:
    """Write `target`.svg and `target`.png, or the one file that `target` names by its suffix (.svg, .pdf, .png). No
    date is written, so that equal figures are equal files. Return the files.
    """
    named = target.suffix in QUIET
    files = [target] if named else [target.with_name(f"{target.name}.{kind}") for kind in ("svg", "png")]
    with matplotlib.rc_context(REPRODUCIBLE_SVG):
        for file in files:
            with atomically(file) as partial:
                figure.savefig(partial, format=file.suffix[1:], dpi=170, metadata=dict.fromkeys(QUIET[file.suffix]))
    return files


def limits(values: Sequence[float], margin: float = 0.08) -> tuple[float, float]:
    """Return the ends of an axis with some room around the values."""
    low, high = min(values), max(values)
    room = (high - low) * margin or abs(high) * margin or 1.0
    return low - room, high + room


def smooth(values: Sequence[float]) -> list[float]:
    """Return the exponential moving average without the bias of its start; half of the weight is in the last 1/30 of
    the curve.
    """
    keep = 0.5 ** (HALF_LIFE / len(values))
    total = weight = 0.0
    result = []
    for value in values:
        total, weight = keep * total + (1 - keep) * value, keep * weight + (1 - keep)
        result.append(total / weight)
    return result


def _noisy(values: Sequence[float]) -> bool:
    """Return True if the curve goes up and down, unlike a learning rate, which goes from one value to another."""
    travelled = math.fsum(abs(b - a) for a, b in pairwise(values))
    return travelled > 3 * (max(values) - min(values))


def _in_order(series: Series) -> tuple[list[float], list[float]]:
    """Return steps and values, sorted by step."""
    order = sorted(range(len(series.steps)), key=series.steps.__getitem__)
    return [series.steps[index] for index in order], [series.values[index] for index in order]


def _ends(steps: Sequence[float]) -> tuple[float, float]:
    """Return both ends of an axis of steps."""
    low, high = min(steps, default=0.0), max(steps, default=1.0)
    return (low - 1, high + 1) if low == high else (low, high)


@on_page
def curve(series: Series, *, width: int = 260, height: int = 130) -> tuple[Any, str]:
    """Return a plot of a metric over its steps: every value, the moving average from 20 values on, and the intervals if
    there are any.
    """
    steps, values = _in_order(series)
    sure = sorted(series.interval.items())
    ends = [*values, *(end for _step, interval in sure for end in interval)]
    axes = _curve_axes(width, height)
    for before in [*axes.lines, *axes.collections]:
        before.remove()
    _set_ends(axes, _ends([*steps, *series.broken]), limits(ends) if values else (0.0, 1.0))
    long = len(values) >= SMOOTH_FROM and _noisy(values)
    if sure:
        at, low, high = [step for step, _ in sure], [low for _, (low, _) in sure], [high for _, (_, high) in sure]
        axes.fill_between(at, low, high, color=STAND_INS["accent"], alpha=0.16, lw=0 if len(at) > 1 else 2, gid="band")
    _line(axes, "raw" if long else "main", steps, values, "raw" if long else "accent", lw=1 if long else 1.75)
    if long:
        _line(axes, "main", steps, smooth(values), "accent", lw=1.75)
    elif len(values) < SMOOTH_FROM:
        _line(axes, "dots", steps, values, "accent", ls="", marker="o", ms=4, mew=0)
    low_end = [0.05] * len(series.broken)
    _line(axes, "broken", series.broken, low_end, "bad", ls="", marker="x", ms=6, transform=axes.get_xaxis_transform())
    summary = (
        f"from {number(values[0])} to {number(values[-1])} in {len(values)} values" if values else "no finite value"
    )
    return axes, f"{series.name}: {summary}"


def _line(axes: Any, kind: str, across: Sequence[float], values: Sequence[float], colour: str, **style: Any) -> None:
    """Draw a line in a colour of the page, in an element of the class `kind`."""
    if across:
        style = {"lw": 1.75, "solid_capstyle": "round", "clip_on": False} | style
        axes.plot(across, values, color=STAND_INS[colour], gid=kind, **style)


@on_page
def compared(
    series: Mapping[str, Series], *, faint: Sequence[Series] = (), width: int = 500, height: int = 230
) -> tuple[Any, str]:
    """Return a plot of one metric of several trainings over their steps, by name; from 20 values on, each training's
    moving average. At most `MOST_SERIES` are drawn, the first ones. faint: further series, thin and behind the others.
    """
    behind = [_in_order(own) for own in faint]
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for name, own in list(series.items())[:MOST_SERIES]:
        at, values = _in_order(own)
        lines[name] = at, smooth(values) if len(values) >= SMOOTH_FROM and _noisy(values) else values
    every = [value for _steps, values in (*lines.values(), *behind) for value in values]
    steps = [step for own, _values in (*lines.values(), *behind) for step in own]
    axes = page_axes(width, height, _ends(steps), limits(every) if every else (0.0, 1.0))
    for at, values in behind:
        _line(axes, "raw", at, values, "raw", lw=1)
    for place, ((at, values), (dashes, thick)) in enumerate(zip(lines.values(), DASHES, strict=False)):
        _line(axes, "main", at, values, f"s{place}", lw=thick, ls=(0, dashes) if dashes else "-")
    summaries = [
        f"{name} from {number(values[0], 4)} to {number(values[-1], 4)}"
        for name, (_own, values) in lines.items()
        if values
    ]
    return axes, "; ".join(summaries) or "no finite value"


def line_sample(place: int) -> Markup:
    """Return a short piece of the line of a series in `compared`, for its key."""
    dashes, thick = DASHES[place]
    line = '<path d="M0 4H38" fill="none" stroke="var(--s{})" stroke-width="{}" stroke-dasharray="{}"/>'
    whole = f'<svg class="plot" viewBox="0 0 38 8" aria-hidden="true">{line}</svg>'
    return Markup(whole).format(place, thick, " ".join(map(str, dashes)))


@dataclass
class Point:
    """A bin of the calibration rewards."""

    p: float
    value: float
    count: float
    used: bool = True
    """True if it counted in the fit."""


@on_page
def fit(
    points: Sequence[Point],
    line: tuple[float, float] | None,
    *,
    what: str,
    floor: float | None = None,
    level: float | None = None,
    width: int = 460,
    height: int = 240,
) -> tuple[Any, str]:
    """Return a plot of a fitted normalizer over its points: `what` against the location p on a logarithmic axis.

    `line` is (w, b) of w log p + b, `floor` its lower bound; `level` a constant. A point's area grows with its count.
    """
    places = [point.p for point in points if point.p > 0]
    low, high = min([*places, 0.1]), max([*places, 1.0])
    grid = [low * (high / low) ** (index / 120) for index in range(121)]

    def fitted(p: float) -> float:
        assert line is not None
        value = line[0] * math.log(p) + line[1]
        return value if floor is None else max(value, floor)

    drawn = [fitted(p) for p in grid] if line else [level] * len(grid) if level is not None else []
    shown = [point for point in points if point.p > 0]
    spread = [*(point.value for point in shown), *drawn, *([floor] if floor is not None else [])]
    axes = page_axes(width, height, (low * 0.97, high * 1.03), limits(spread or [0.0, 1.0]), log=True)
    if floor is not None:
        _line(axes, "floor", [low, high], [floor, floor], "warn", lw=1.25, ls=(0, (4, 3)))
    if drawn:
        _line(axes, "main", grid, drawn, "accent")
    most = max((point.count for point in points), default=1.0) or 1.0
    for used, own in ((True, [p for p in shown if p.used]), (False, [p for p in shown if not p.used])):
        sizes = [4 * (1.5 + 5.5 * math.sqrt(max(0.0, point.count) / most)) ** 2 for point in own]
        style = {
            "alpha": 0.5,
            "lw": 0.75,
            "edgecolors": STAND_INS["muted"],
            "gid": "bin" if used else "unused",
            "clip_on": False,
        }
        fill = {"facecolors": STAND_INS["muted"]} if used else {"facecolors": "none", "linestyles": "dashed"}
        axes.scatter([p.p for p in own], [p.value for p in own], sizes, **style, **fill)
    return axes, f"{what} of segment rewards against their location, {len(points)} points"
