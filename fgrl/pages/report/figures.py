"""Numbers of recipes as figures (SVG, PNG or PDF) and as tables: curves, frontiers, lines and bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.base.visible import quantity
from fgrl.measuring.number_names import NumberName
from fgrl.measuring.statistics import Estimate
from fgrl.pages.report.plots import COLOURS, INK, MUTED, printed_figure, save_figure
from fgrl.runs.results.curves import Curve
from fgrl.runs.results.estimates import ShownEstimate, common_decimals
from fgrl.runs.results.frontier import Frontier, Point
from fgrl.runs.results.paper_table import PaperTable

tickers = lazy.load("matplotlib.ticker")

LABELS = {
    "kl.sum": "KL to the reference, nats per answer",
    "kl.per_token": "KL to the reference, nats per token",
    "length.tokens": "tokens per answer",
    "length.words": "words per answer",
}
SHARES = ("win_rate", "length_adjusted", "kept", "exact_match")
"""Numbers that an axis shows as percentages."""
DASHES = ("-", "--", ":", "-.")
"""Dashes of lines, which differ in addition to the colours."""
WIDTH = 0.8
"""Width of all bars of a column together; columns are 1 apart."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")


def draw_lines(
    lines: Iterable[tuple[str, Iterable[tuple[float, Estimate]]]],
    target: Path,
    x_label: str,
    y_label: str,
    *,
    bands: bool = False,
) -> list[Path]:
    """Write named lines through the means, with their intervals as bands or as error bars. Return the files:
    `target`.svg and `target`.png, or the file that `target` names.
    """
    figure, axes = printed_figure(4.2, x_label, y_label)
    for place, (name, points) in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        known = [(x, point) for x, point in points if point.mean is not None]
        style = {"color": colour, "lw": 1.6, "marker": "" if bands else "o", "ms": 4, "label": name}
        means = [point.mean for _, point in known]
        axes.plot([x for x, _ in known], means, DASHES[place % len(DASHES)], **style)
        sure = [(x, p.low, p.high) for x, p in known if p.low is not None and p.high is not None]
        if bands and sure:
            axes.fill_between(*zip(*sure, strict=True), color=colour, alpha=0.15, lw=0)
        for x, low, high in [] if bands else sure:
            axes.plot([x, x], [low, high], color=colour, lw=1.0, alpha=0.6)
    if any(axes.get_legend_handles_labels()[1]):
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return save_figure(figure, target)


# -- curves ------------------------------------------------------------------------------------------------------------


def draw_curves(curves: Sequence[Curve], target: Path, metric: str) -> list[Path]:
    """Write means as lines and intervals as bands. Return the files."""
    return draw_lines(((own.name, own.points.items()) for own in curves), target, "step", metric, bands=True)


def curve_rows(curves: Sequence[Curve]) -> list[list[str]]:
    """Return the table with its head: a row for each step, and a column for each curve."""
    rows = [["step", *(f"{own.name} ({quantity(len(own.seeds), 'seed')})" for own in curves)]]
    decimals = [common_decimals(list(own.points.values())) for own in curves]
    for step in sorted({step for own in curves for step in own.points}):
        points = [(own.points.get(step), places) for own, places in zip(curves, decimals, strict=True)]
        rows.append(
            [f"{step:g}", *("" if p is None else ShownEstimate.of(p, places).with_interval for p, places in points)]
        )
    return rows


# -- tables of papers --------------------------------------------------------------------------------------------------


def draw_column(table: PaperTable, title: str, target: Path, x_label: str, y_label: str) -> list[Path]:
    """Draw our numbers of one column against the rows' `x`, with their intervals. A group is a line."""
    lines = []
    for group, members in table.groups.items():
        known = [(row.x, ours) for row in members if row.x is not None and (ours := row.cells[title].ours) is not None]
        lines.append((group, sorted(known, key=lambda point: point[0])))
    return draw_lines(lines, target, x_label, y_label or title)


def draw_bars(table: PaperTable, target: Path, y_label: str) -> list[Path]:
    """Draw our numbers of each column as bars side by side, with their intervals."""
    figure, axes = printed_figure(4.2, "", y_label)
    titles = [title for title in table.columns if any(row.cells[title].ours for row in table.rows)]
    width = WIDTH / len(table.rows)
    for place, row in enumerate(table.rows):
        shift = (place - (len(table.rows) - 1) / 2) * width
        known = [(at + shift, ours) for at, title in enumerate(titles) if (ours := row.cells[title].ours) is not None]
        style = {"color": COLOURS[place % len(COLOURS)], "alpha": 0.75, "label": row.full_name}
        axes.bar([at for at, _ in known], [ours.mean for _, ours in known], width, **style)
        for at, ours in known:
            if ours.low is not None and ours.high is not None:
                axes.plot([at, at], [ours.low, ours.high], color=INK, lw=1.0, alpha=0.6)
    axes.set_xticks(range(len(titles)), titles, fontsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return save_figure(figure, target)


# -- frontiers ---------------------------------------------------------------------------------------------------------


def draw_frontier(frontier: Frontier, target: Path, x_label: str = "", y_label: str = "") -> list[Path]:
    """Write `target`.svg and `target`.png, or the file that `target` names. Return the files."""
    figure, axes = printed_figure(4.9, x_label or title(frontier.x_name), y_label or title(frontier.y_name))
    _front(axes, frontier)
    shared = _shared([point.label for point in frontier.points if not point.start])
    series = list(dict.fromkeys(point.series for point in frontier.points if not point.start))
    for place, name in enumerate(series):
        own = [point for point in frontier.points if point.series == name and not point.start]
        colour = COLOURS[place % len(COLOURS)]
        axes.plot([p.x.mean for p in own], [p.y.mean for p in own], color=colour, lw=1.2, alpha=0.55, zorder=2)
        for point in own:
            text = point.label.removeprefix(shared).strip()
            _mark(axes, point, text, colour, MARKERS[place % len(MARKERS)], name if point is own[0] else None)
    for point in (point for point in frontier.points if point.start):
        _mark(axes, point, point.model, MUTED, "o", None)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(MUTED)
    if frontier.y_name.number in SHARES:
        axes.yaxis.set_major_formatter(tickers.PercentFormatter(1.0))
    axes.yaxis.set_major_locator(tickers.MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    axes.margins(x=0.07, y=0.1)
    # beside the axes: inside, its markers look like points
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    legend = axes.legend(frameon=False, fontsize=9, labelcolor=INK, alignment="left", **beside)
    if shared:
        legend.set_title(f"labels: {shared}", prop={"size": 9})
        legend.get_title().set_color(MUTED)
    return save_figure(figure, target)


def title(name: NumberName) -> str:
    """Return the label of an axis."""
    if str(name) in LABELS:
        return LABELS[str(name)]
    number, metric = name.number.replace("_", " "), name.metric.replace("_", " ")
    return metric if number in ("", "mean", metric) else f"{number} ({metric})"


def frontier_rows(frontier: Frontier) -> list[list[str]]:
    """Return the table with its head. A star marks Pareto-optimal points."""
    decimals = [common_decimals([getattr(point, axis) for point in frontier.points]) for axis in ("x", "y")]
    rows = [["", "series", "model", "settings", str(frontier.x_name), str(frontier.y_name)]]
    for point in frontier.points:
        ends = [
            ShownEstimate.of(each, own).with_interval for each, own in zip((point.x, point.y), decimals, strict=True)
        ]
        rows.append(["*" if point.best else "", point.series, point.model, point.label, *ends])
    return rows


def _front(axes: Any, frontier: Frontier) -> None:
    """Draw a step along the Pareto-optimal points: the largest y at each x."""
    best = sorted(point.at for point in frontier.points if point.best)
    if len(best) < 2:
        return
    across, up = [at[0] for at in best], [at[1] for at in best]
    axes.step(across, up, where="post", color=MUTED, lw=1.0, ls=(0, (4, 3)), alpha=0.45, zorder=1, label="frontier")


def _mark(axes: Any, point: Point, text: str, colour: str, marker: str, label: str | None) -> None:
    x, y = point.x, point.y
    style = {"fmt": "none", "ecolor": colour, "elinewidth": 1.0, "alpha": 0.4, "zorder": 3}
    axes.errorbar([x.mean], [y.mean], xerr=_error(x), yerr=_error(y), **style)
    axes.scatter(
        [x.mean], [y.mean], s=62 if point.best else 40, marker=marker, zorder=4, label=label, linewidths=1.6,
        facecolors=colour if point.best else "white", edgecolors=colour,
    )  # fmt: skip
    if text:
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
        axes.annotate(
            text, (x.mean, y.mean), xytext=(7, -12), textcoords="offset points", fontsize=8.5, color=colour, zorder=5,
            bbox=behind,
        )  # fmt: skip


def _shared(labels: Sequence[str]) -> str:
    """Return the only setting in which the points differ, so that it need not be written at each point; empty if there
    are several.
    """
    names = {label.rpartition(" ")[0] for label in labels if label}
    name = next(iter(names)) if len(names) == 1 else ""
    return "" if "," in name or " " in name else name


def _error(value: Estimate) -> list[list[float]] | None:
    if value.mean is None or value.low is None or value.high is None:
        return None
    return [[max(0.0, value.mean - value.low)], [max(0.0, value.high - value.mean)]]
