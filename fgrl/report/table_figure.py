"""Figures of table files: columns against a value of the rows, or as bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fgrl.report.curve_plot import DASHES
from fgrl.report.plots import COLOURS, INK, printed_figure, save_figure
from fgrl.results.paper_table import Cell, PaperTable

WIDTH = 0.8
"""Of all bars of a column together; columns are 1 apart."""


def draw_lines(table: PaperTable, target: Path, x_label: str, y_label: str) -> list[Path]:
    """Draw our numbers of each column against the rows' `x`, with their intervals. A group is a line."""
    figure, axes = printed_figure(4.2, x_label, y_label or ", ".join(table.columns))
    lines = [(title, group, members) for title in table.columns for group, members in table.groups.items()]
    for place, (title, group, members) in enumerate(lines):
        known = [(row.x, row.cells[title]) for row in members if row.x is not None and row.cells[title].ours]
        known.sort(key=lambda point: point[0])
        label = " ".join(filter(None, (group, title if len(table.columns) > 1 else ""))) or title
        _points(axes, [x for x, _ in known], [cell for _, cell in known], place, label, DASHES[place % len(DASHES)])
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return save_figure(figure, target)


def draw_bars(table: PaperTable, target: Path, y_label: str) -> list[Path]:
    """Draw our numbers of each column as bars side by side, with their intervals."""
    figure, axes = printed_figure(4.2, "", y_label)
    width = WIDTH / len(table.rows)
    for place, row in enumerate(table.rows):
        across = [at + (place - (len(table.rows) - 1) / 2) * width for at in range(len(table.columns))]
        cells = [row.cells[title] for title in table.columns]
        known = [(x, cell) for x, cell in zip(across, cells, strict=True) if cell.ours]
        colour = COLOURS[place % len(COLOURS)]
        label = row.full_name
        axes.bar(
            [x for x, _ in known], [_mean(cell) for _, cell in known], width, color=colour, alpha=0.75, label=label
        )
        _errors(axes, [x for x, _ in known], [cell for _, cell in known], INK)
    axes.set_xticks(range(len(table.columns)), table.columns, fontsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return save_figure(figure, target)


def _points(axes: Any, across: list[float], cells: list[Cell], place: int, label: str, dashes: str) -> None:
    colour = COLOURS[place % len(COLOURS)]
    axes.plot(across, [_mean(cell) for cell in cells], dashes, color=colour, lw=1.6, marker="o", ms=4, label=label)
    _errors(axes, across, cells, colour)


def _errors(axes: Any, across: list[float], cells: list[Cell], colour: str) -> None:
    for x, cell in zip(across, cells, strict=True):
        if (ours := cell.ours) is not None and ours.low is not None and ours.high is not None:
            axes.plot([x, x], [ours.low, ours.high], color=colour, lw=1.0, alpha=0.6)


def _mean(cell: Cell) -> float:
    assert cell.ours is not None
    assert cell.ours.mean is not None
    return cell.ours.mean
