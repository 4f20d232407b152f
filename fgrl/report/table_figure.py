"""Figures of table files: columns against a value of the rows, or as bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fgrl.report.curve_plot import DASHES
from fgrl.report.plots import COLOURS, INK, printed_figure, save_figure
from fgrl.results.paper_table import Cell, PaperTable

WIDTH = 0.8
"""Of all bars of a column together; columns are 1 apart."""


def draw_lines(table: PaperTable, title: str, target: Path, x_label: str, y_label: str) -> list[Path]:
    """Draw our numbers of one column against the rows' `x`, with their intervals. A group is a line."""
    figure, axes = printed_figure(4.2, x_label, y_label or title)
    for place, (group, members) in enumerate(table.groups.items()):
        known = [(row.x, row.cells[title]) for row in members if row.x is not None and row.cells[title].ours]
        known.sort(key=lambda point: point[0])
        across, cells, colour = [x for x, _ in known], [cell for _, cell in known], COLOURS[place % len(COLOURS)]
        style = {"color": colour, "lw": 1.6, "marker": "o", "ms": 4, "label": group}
        axes.plot(across, [_mean(cell) for cell in cells], DASHES[place % len(DASHES)], **style)
        _errors(axes, across, cells, colour)
    if len(table.groups) > 1:
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return save_figure(figure, target)


def draw_bars(table: PaperTable, target: Path, y_label: str) -> list[Path]:
    """Draw our numbers of each column as bars side by side, with their intervals."""
    figure, axes = printed_figure(4.2, "", y_label)
    titles = [title for title in table.columns if any(row.cells[title].ours for row in table.rows)]
    width = WIDTH / len(table.rows)
    for place, row in enumerate(table.rows):
        known = [(at, row.cells[title]) for at, title in enumerate(titles) if row.cells[title].ours]
        across, cells = (
            [at + (place - (len(table.rows) - 1) / 2) * width for at, _ in known],
            [cell for _, cell in known],
        )
        style = {"color": COLOURS[place % len(COLOURS)], "alpha": 0.75, "label": row.full_name}
        axes.bar(across, [_mean(cell) for cell in cells], width, **style)
        _errors(axes, across, cells, INK)
    axes.set_xticks(range(len(titles)), titles, fontsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return save_figure(figure, target)


def _errors(axes: Any, across: list[float], cells: list[Cell], colour: str) -> None:
    for x, cell in zip(across, cells, strict=True):
        if (ours := cell.ours) is not None and ours.low is not None and ours.high is not None:
            axes.plot([x, x], [ours.low, ours.high], color=colour, lw=1.0, alpha=0.6)


def _mean(cell: Cell) -> float:
    assert cell.ours is not None
    assert cell.ours.mean is not None
    return cell.ours.mean
