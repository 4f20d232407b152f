"""Curves of several recipes as a plot (SVG and PNG) and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgrl.report.plots import COLOURS, INK, printed_figure, save_figure
from fgrl.results import curves as results
from fgrl.results.curves import Curve
from fgrl.results.estimates import ShownEstimate, common_decimals
from fgrl.visible import quantity

DASHES = ("-", "--", ":", "-.")
"""Curves differ in their dashes, too, not in colour alone."""


def draw(curves: Sequence[Curve], target: Path, metric: str) -> list[Path]:
    """Write `target`.svg and `target`.png, or the file that `target` names: means as lines, intervals as bands. Returns
    the files.
    """
    figure, axes = printed_figure(4.2, "step", metric)
    for place, own in enumerate(curves):
        colour = COLOURS[place % len(COLOURS)]
        known = [(step, point) for step, point in own.points.items() if point.mean is not None]
        steps, means = [step for step, _ in known], [point.mean for _, point in known]
        axes.plot(steps, means, DASHES[place % len(DASHES)], color=colour, lw=1.6, label=own.name)
        sure = [(step, p.low, p.high) for step, p in known if p.low is not None and p.high is not None]
        if sure:
            axes.fill_between(*zip(*sure, strict=True), color=colour, alpha=0.15, lw=0)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return save_figure(figure, target)


def rows(curves: Sequence[Curve]) -> list[tuple[str, ...]]:
    """Return the table, with its head: a row for each step, a column for each curve."""
    table = results.table(curves)
    decimals = [common_decimals(list(own.points.values())) for own in curves]
    head = ("step", *(f"{own.name} ({quantity(len(own.seeds), 'seed')})" for own in curves))
    return [head] + [
        (f"{step:g}", *("" if p is None else ShownEstimate.of(p, places).with_interval for p, places in zip(points, decimals, strict=True)))
        for step, points in table
    ]  # fmt: skip


def as_json(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return the points of each curve as plain data."""
    return [
        {
            "name": own.name,
            "seeds": own.seeds,
            "points": [{"step": step, **point.model_dump(include={"mean", "low", "high"})} for step, point in own.points.items()],
        }
        for own in curves
    ]  # fmt: skip
