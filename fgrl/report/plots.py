"""Line plots as small SVGs that follow the page's colours.

Lines, grid and texts have classes of the page's stylesheet in place of colours, so that a plot is right in the dark and
in the light. It has no scripts, no ids, no references, and text that comes from data is escaped. matplotlib chooses the
ticks, and draws what is printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from fgrl import lazy
from fgrl.files import atomically
from fgrl.results.series import Series
from fgrl.results.text import exponent, number

matplotlib = lazy.load("matplotlib")
figures = lazy.load("matplotlib.figure")
tickers = lazy.load("matplotlib.ticker")
transforms = lazy.load("matplotlib.transforms")
agg_backend = lazy.load("matplotlib.backends.backend_agg")

REPRODUCIBLE_SVG = {"svg.fonttype": "none", "svg.hashsalt": "fgrl"}
"""Settings of matplotlib: text stays text, and the same plot is the same bytes."""
QUIET = {".svg": ("Date", "Creator"), ".png": ("Software",), ".pdf": ("CreationDate", "Creator", "Producer")}
"""Endings of printed figures, and what is not written into them."""
COLOURS = ("#1f5fa8", "#c8641b", "#2f8f5b", "#8d4a9e", "#b3282d", "#5d6b78", "#a3841a", "#1a8a94")
INK, MUTED, GRID = "#1d1c1a", "#67635c", "#ece9e2"
"""Colours of printed figures."""
LEFT, RIGHT, TOP, BOTTOM = 42, 6, 14, 20
"""Margins in pixels."""
SMOOTH_FROM = 20
"""Shorter curves are drawn as they are."""
HALF_LIFE = 30
"""The moving average forgets half in this fraction (1/30) of the curve."""
MOST_POINTS = 300
MOST_SERIES = 8
"""Series in one plot, each with its own colour and dashes."""
HOVER_POINTS = 48


@dataclass
class Frame:
    """A pair of axes, and what is drawn on them so far."""

    width: int
    height: int
    x: tuple[float, float]
    y: tuple[float, float]
    log_x: bool
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return data to pixels of the SVG (y grows downwards)."""
        (left, right), here = self.x, x
        if self.log_x:
            left, right, here = math.log(left), math.log(right), math.log(x)
        across, up = (here - left) / (right - left), (y - self.y[0]) / (self.y[1] - self.y[0])
        bottom = self.height - BOTTOM
        return LEFT + across * (self.width - LEFT - RIGHT), bottom - up * (bottom - TOP)

    def line(self, kind: str, across: Sequence[float], values: Sequence[float]) -> None:
        """Draw a line with a class of the stylesheet."""
        spots = map(self.at, across, values)
        self.parts.append(f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in spots)}"/>')

    def svg(self, label: str, on_top: Sequence[str] = ()) -> Markup:
        """Return the plot; `label` is for screen readers, `on_top` is trusted markup."""
        inside = "".join([*self.parts, *on_top])
        head = f'<svg class="plot" viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(label)}">'
        return Markup(f"{head}{inside}</svg>")  # inside: numbers and classes only


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
    """Write `target`.svg and `target`.png, or the one file that `target` names by its ending (.svg, .pdf, .png). Without a
    date, so that equal figures are equal files. Returns the files.
    """
    named = target.suffix in QUIET
    files = [target] if named else [target.with_name(f"{target.name}.{kind}") for kind in ("svg", "png")]
    with matplotlib.rc_context(REPRODUCIBLE_SVG):
        for file in files:
            with atomically(file) as partial:
                figure.savefig(partial, format=file.suffix[1:], dpi=170, metadata=dict.fromkeys(QUIET[file.suffix]))
    return files


def _frame(width: int, height: int, x: tuple[float, float], y: tuple[float, float], *, log_x: bool = False) -> Frame:
    x, y = x if log_x else transforms.nonsingular(*x, 0.05), transforms.nonsingular(*y, 0.05)
    frame = Frame(width, height, x, y, log_x)
    columns = _log_ticks(*x) if log_x else _ticks(x, 4, integer=x[1] - x[0] >= 1)
    texts = [f"{tick:g}" for tick in columns] if log_x else _labels(columns)
    for tick, text in zip(columns, texts, strict=True):
        place = frame.at(tick, y[0])[0]
        frame.parts.append(f'<text text-anchor="middle" x="{place:.1f}" y="{height - BOTTOM + 12.6:.1f}">{text}</text>')
    rows = _ticks(y, max(4, height // 45))
    for tick, text in zip(rows, _labels(rows), strict=True):
        frame.line("grid", x, (tick, tick))
        place = frame.at(x[0], tick)[1] + 3.8
        frame.parts.append(f'<text text-anchor="end" x="{LEFT - 5}" y="{place:.1f}">{text}</text>')
    frame.line("axis", x, (y[0], y[0]))
    return frame


def _ticks(limits: tuple[float, float], at_most: int, *, integer: bool = False) -> list[float]:
    low, high = limits
    slack = (high - low) * 1e-9
    ticks = tickers.MaxNLocator(nbins=at_most, integer=integer, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in ticks if low - slack <= tick <= high + slack]


def _labels(ticks: Sequence[float]) -> list[str]:
    """Texts with as many digits as neighbours need to differ."""
    if len(ticks) < 2:
        return [number(tick, 4) for tick in ticks]
    step = min(b - a for a, b in pairwise(ticks))
    size = max(abs(tick) for tick in ticks)
    if size >= 1e6 or size < 1e-2:
        digits = max(0, math.floor(math.log10(size)) - math.floor(math.log10(step) + 1e-9))
        return ["0" if abs(tick) < step / 2 else exponent(tick, digits) for tick in ticks]
    places = min(9, max(0, -math.floor(math.log10(step) + 1e-9)))
    return [f"{0.0 if abs(tick) < step / 2 else tick:,.{places}f}".replace("-", "−") for tick in ticks]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = math.log10(high / low)
    factors = (1, 2, 5) if decades < 1.7 else (1, 3) if decades < 2.2 else (1,)
    ticks = map(float, tickers.LogLocator(subs=factors, numticks=99).tick_values(low, high))
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def _limits(values: Sequence[float], margin: float = 0.08) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * margin or abs(high) * margin or 1.0
    return low - room, high + room


def smooth(values: Sequence[float]) -> list[float]:
    """Exponential moving average without the bias of its start; half of the weight is in the last 1/30 of the curve."""
    keep = 0.5 ** (HALF_LIFE / len(values))
    total = weight = 0.0
    result = []
    for value in values:
        total, weight = keep * total + (1 - keep) * value, keep * weight + (1 - keep)
        result.append(total / weight)
    return result


def _noisy(values: Sequence[float]) -> bool:
    """Return True if the curve goes up and down (and not, as a learning rate, from here to there)."""
    travelled = math.fsum(abs(b - a) for a, b in pairwise(values))
    return travelled > 3 * (max(values) - min(values))


def _thin(steps: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    """At most about `MOST_POINTS` points; of every stretch the lowest and the highest stay, so peaks are not lost."""
    if len(values) <= MOST_POINTS:
        return steps, values
    size = math.ceil(2 * len(values) / MOST_POINTS)
    kept: list[int] = []
    for start in range(0, len(values), size):
        block = range(start, min(start + size, len(values)))
        kept += sorted({min(block, key=values.__getitem__), max(block, key=values.__getitem__)})
    kept = sorted({0, *kept, len(values) - 1})
    return [steps[index] for index in kept], [values[index] for index in kept]


def _in_order(series: Series) -> tuple[list[float], list[float]]:
    """Return steps and values, by step."""
    order = sorted(range(len(series.steps)), key=series.steps.__getitem__)
    return [series.steps[index] for index in order], [series.values[index] for index in order]


def _ends(steps: Sequence[float]) -> tuple[float, float]:
    """Both ends of an axis of steps."""
    low, high = min(steps, default=0.0), max(steps, default=1.0)
    return (low - 1, high + 1) if low == high else (low, high)


def curve(series: Series, *, width: int = 260, height: int = 130) -> Markup:
    """Return a metric over its steps: every value, from 20 values on their moving average, and the intervals where
    there are any.
    """
    steps, values = _in_order(series)
    ends = [end for interval in series.interval.values() for end in interval]
    frame = _frame(width, height, _ends([*steps, *series.broken]), _limits([*values, *ends]) if values else (0.0, 1.0))
    long = len(values) >= SMOOTH_FROM and _noisy(values)
    if values:
        frame.line("raw" if long else "main", *_thin(steps, values))
    if long:
        frame.line("main", *_thin(steps, smooth(values)))
    marks = _band(frame, series.interval)
    if len(values) < SMOOTH_FROM:
        marks += [_dot(*frame.at(step, value)) for step, value in zip(steps, values, strict=True)]
    bottom = height - BOTTOM
    for step in series.broken[:MOST_POINTS]:
        x = frame.at(step, 0)[0]
        marks.append(f'<path class="broken" d="M{x - 3:.1f} {bottom - 8}l6 6m0 -6l-6 6"/>')

    def texts_at(step: float, here: dict[str, float]) -> list[str]:
        ends = (
            " ({} to {})".format(*(number(end, 4) for end in series.interval[step])) if step in series.interval else ""
        )
        return [f"{number(step, 6)}: {number(here[series.name], 4)}{ends}"]

    marks += _hover(frame, {series.name: (steps, values)}, texts_at)
    summary = (
        f"from {number(values[0])} to {number(values[-1])} in {len(values)} values" if values else "no finite value"
    )
    return frame.svg(f"{series.name}: {summary}", marks)


def compared(
    series: Mapping[str, Series], *, faint: Sequence[Series] = (), width: int = 500, height: int = 230
) -> Markup:
    """One metric of several trainings over their steps, by name; from 20 values on each one's moving average. Of more
    than `MOST_SERIES` the first are drawn. faint: others, thin and behind them.
    """
    behind = [_in_order(own) for own in faint]
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for name, own in list(series.items())[:MOST_SERIES]:
        at, values = _in_order(own)
        lines[name] = at, smooth(values) if len(values) >= SMOOTH_FROM and _noisy(values) else values
    every = [value for _steps, values in (*lines.values(), *behind) for value in values]
    steps = [step for own, _values in (*lines.values(), *behind) for step in own]
    frame = _frame(width, height, _ends(steps), _limits(every) if every else (0.0, 1.0))
    for at, values in behind:
        if values:
            frame.line("raw", *_thin(at, values))
    for place, (at, values) in enumerate(lines.values()):
        if values:
            frame.line(f"series series-{place}", *_thin(at, values))
    summaries = [
        f"{name} from {number(values[0], 4)} to {number(values[-1], 4)}"
        for name, (_own, values) in lines.items()
        if values
    ]

    def texts_at(step: float, here: dict[str, float]) -> list[str]:
        return [f"step {number(step, 6)}", *(f"{name} {number(value, 4)}" for name, value in here.items())]

    return frame.svg("; ".join(summaries) or "no finite value", _hover(frame, lines, texts_at))


def line_sample(place: int) -> Markup:
    """Return a short piece of the line of a series in `compared`, for its key."""
    return Markup(
        '<svg class="plot" viewBox="0 0 38 8" aria-hidden="true"><path class="series series-{}" d="M0 4H38"/></svg>'
    ).format(place)


def _hover(
    frame: Frame,
    lines: Mapping[str, tuple[list[float], list[float]]],
    texts_at: Callable[[float, dict[str, float]], list[str]],
) -> list[str]:
    """Return strips over the plot that show texts about a step and the lines' values there while the mouse is over
    them, and the place of a single line.
    """
    known = {name: dict(zip(*line, strict=True)) for name, line in lines.items()}
    steps = sorted({step for own, _values in lines.values() for step in own})
    count = min(HOVER_POINTS, len(steps))
    picked = [steps[round(index * (len(steps) - 1) / max(1, count - 1))] for index in range(count)]
    inside = []
    for step in picked:
        values = {name: own[step] for name, own in known.items() if step in own}
        marks = (
            ['<circle cx="{:.1f}" cy="{:.1f}" r="3"/>'.format(*frame.at(step, *values.values()))]
            if len(known) == 1
            else []
        )
        marks += [
            f'<text x="{frame.width - RIGHT}" y="{10 + 12 * row}" text-anchor="end">{escape(text)}</text>'
            for row, text in enumerate(texts_at(step, values))
        ]
        inside.append("".join(marks))
    return _strips(frame, [frame.at(step, 0.0)[0] for step in picked], inside)


def _strips(frame: Frame, spots: Sequence[float], inside: Sequence[str]) -> list[str]:
    """Return strips over the plot, one around each spot, with a rule and what is shown while the mouse is over them."""
    strips = []
    for place, (x, shown) in enumerate(zip(spots, inside, strict=True)):
        left = (spots[place - 1] + x) / 2 if place else LEFT
        right = (spots[place + 1] + x) / 2 if place + 1 < len(spots) else frame.width - RIGHT
        box = f"M{left:.1f} 0H{right:.1f}V{frame.height - BOTTOM}H{left:.1f}z"
        rule = f"M{x:.1f} {TOP}V{frame.height - BOTTOM}"
        strips.append(f'<g class="at"><path d="{box}"/><path class="rule" d="{rule}"/>{shown}</g>')
    return strips


def _dot(x: float, y: float) -> str:
    return f'<circle class="main" cx="{x:.1f}" cy="{y:.1f}" r="2"/>'


def _band(frame: Frame, interval: Mapping[float, tuple[float, float]]) -> list[str]:
    """Return the area between the ends of the intervals; of a single one a line."""
    steps = sorted(interval)
    if not steps:
        return []
    below = [frame.at(step, interval[step][0]) for step in steps]
    above = [frame.at(step, interval[step][1]) for step in reversed(steps)]
    points = "L".join(f"{x:.1f} {y:.1f}" for x, y in [*below, *above])
    return [f'<path class="band{"" if len(steps) > 1 else " single"}" d="M{points}z"/>']


@dataclass
class Point:
    """A bin of the calibration rewards."""

    p: float
    value: float
    count: float
    used: bool = True
    """True if it counted in the fit."""


def fit(
    points: Sequence[Point],
    line: tuple[float, float] | None,
    *,
    what: str,
    floor: float | None = None,
    level: float | None = None,
    width: int = 460,
    height: int = 240,
) -> Markup:
    """Return a fitted normalizer over its points: `what` against the location p on a logarithmic axis.

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
    values = [point.value for point in points if point.p > 0]
    spread = [*values, *drawn, *([floor] if floor is not None else [])]
    frame = _frame(width, height, (low * 0.97, high * 1.03), _limits(spread or [0.0, 1.0]), log_x=True)
    if floor is not None:
        frame.line("floor", [low, high], [floor, floor])
    if drawn:
        frame.line("main", grid, drawn)
    most = max((point.count for point in points), default=1.0) or 1.0
    circles = []
    for point in points:
        if point.p <= 0:
            continue
        x, y = frame.at(point.p, point.value)
        radius = 1.5 + 5.5 * math.sqrt(max(0.0, point.count) / most)
        text = f"p {number(point.p)}: {what} {number(point.value)}, {number(point.count)} segments"
        text += "" if point.used else ", not used"
        circles.append(
            f'<circle class="bin{"" if point.used else " unused"}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
            f"<title>{escape(text)}</title></circle>"
        )
    return frame.svg(f"{what} of segment rewards against their location, {len(points)} points", circles)
