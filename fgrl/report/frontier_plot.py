"""A frontier as a plot (SVG and PNG) and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgrl import lazy
from fgrl.evaluation.number_names import NumberName
from fgrl.evaluation.statistics import Estimate
from fgrl.report.plots import COLOURS, INK, MUTED, printed_figure, save_figure
from fgrl.results.estimates import ShownEstimate, common_decimals
from fgrl.results.frontier import Frontier, Point

tickers = lazy.load("matplotlib.ticker")

LABELS = {
    "kl.sum": "KL to the reference, nats per answer",
    "kl.per_token": "KL to the reference, nats per token",
    "length.tokens": "tokens per answer",
    "length.words": "words per answer",
}
SHARES = ("win_rate", "length_adjusted", "kept", "exact_match")
"""Numbers that an axis shows in percent."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")


def draw(frontier: Frontier, target: Path, x_label: str = "", y_label: str = "") -> list[Path]:
    """Write `target`.svg and `target`.png, or the file that `target` names. Returns the files."""
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


def rows(frontier: Frontier) -> list[tuple[str, ...]]:
    """Return the table, with its head."""
    columns = [[point.x for point in frontier.points], [point.y for point in frontier.points]]
    cells = [_texts(column) for column in columns]
    head = ("", "series", "model", "settings", str(frontier.x_name), str(frontier.y_name))
    body = [
        ("*" if point.best else "", point.series, point.model, point.label, x, y)
        for point, x, y in zip(frontier.points, *cells, strict=True)
    ]
    return [head, *body]


def _texts(estimates: Sequence[Estimate]) -> list[str]:
    decimals = common_decimals(estimates)
    return [ShownEstimate.of(estimate, decimals).with_interval for estimate in estimates]


# ----------------------------------------------------------------------------------------------------------------------


def _front(axes: Any, frontier: Frontier) -> None:
    """Draw a step along the Pareto-optimal points: the largest y at each x."""
    best = sorted(((p.x.mean, p.y.mean) for p in frontier.points if p.best), key=lambda at: (at[0], at[1]))
    if len(best) < 2:
        return
    across, up = [at[0] for at in best], [at[1] for at in best]
    axes.step(across, up, where="post", color=MUTED, lw=1.0, ls=(0, (4, 3)), alpha=0.45, zorder=1, label="frontier")


def _mark(axes: Any, point: Point, text: str, colour: str, marker: str, label: str | None) -> None:
    x, y = point.x, point.y
    errors = [_error(value) for value in (x, y)]
    axes.errorbar(
        [x.mean],
        [y.mean],
        xerr=errors[0],
        yerr=errors[1],
        fmt="none",
        ecolor=colour,
        elinewidth=1.0,
        alpha=0.4,
        zorder=3,
    )
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
    """Return the setting that is all that the points differ in, so that it need not be written at each."""
    names = {label.rpartition(" ")[0] for label in labels if label}
    name = next(iter(names)) if len(names) == 1 else ""
    return "" if "," in name or " " in name else name


def _error(value: Estimate) -> list[list[float]] | None:
    if value.mean is None or value.low is None or value.high is None:
        return None
    return [[max(0.0, value.mean - value.low)], [max(0.0, value.high - value.mean)]]
