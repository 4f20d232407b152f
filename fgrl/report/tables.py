"""Tables as text: columns for a terminal, or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fgrl import lazy

if TYPE_CHECKING:
    from fgrl.report.estimates import ShownNumber
    from fgrl.results.tables import NumberTable
estimates = lazy.load("fgrl.report.estimates")


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Rows in left-aligned columns; the last column may have any width."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*[row[:-1] for row in table], strict=True)] if table else []
    return "\n".join(
        (indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in table
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


@dataclass(frozen=True)
class Cell:
    """A number of one model of a recipe."""

    name: str
    about: str
    row: ShownNumber

    @property
    def value(self) -> str:
        return self.row.value.with_interval

    @property
    def change(self) -> str:
        """`difference +0.38 [0.23 to 0.52]`; empty where there is none."""
        difference = self.row.difference
        if difference is None or difference.mean is None:
            return ""
        return f"difference {difference.change}" + (f" [{difference.interval}]" if difference.interval else "")

    def as_json(self) -> dict[str, Any]:
        shown_by_prefix = {"": self.row.value, "change_": self.row.difference}
        numbers = {
            f"{prefix}{end}": value
            for prefix, shown in shown_by_prefix.items()
            if shown is not None
            for end, value in shown.estimate.model_dump(include={"mean", "low", "high"}).items()
        }
        texts = {"text": self.value, "change": self.change, "about": self.about}
        return {"model": self.row.model, "number": self.name, **texts, **numbers}


def number_blocks(table: NumberTable) -> str:
    """A block for each number, so that recipes stand below each other in any terminal."""
    cells = _cells(table)
    blocks = []
    for name, about in _abouts(cells).items():
        rows = [
            (recipe, cell.row.model, cell.value, cell.change)
            for recipe, row in cells.items()
            for cell in row or []
            if cell.name == name
        ]
        blocks.append(f"{name}{f' ({about})' if about else ''}\n{columns(rows)}")
    waiting = [recipe for recipe, row in cells.items() if row is None]
    if waiting:
        blocks.append(f"not run: {', '.join(waiting)}")
    return "\n\n".join(blocks)


def number_markdown(table: NumberTable) -> str:
    """A row for each recipe and model, a column for each number; below it how the numbers were computed."""
    cells = _cells(table)
    abouts = _abouts(cells)
    rows = [["recipe", "model", *abouts]]
    for recipe, row in cells.items():
        values = {(cell.row.model, cell.name): cell.value for cell in row or []}
        models = dict.fromkeys(cell.row.model for cell in row or [])
        rows += [[recipe, model, *(values.get((model, name), "") for name in abouts)] for model in models]
        if row is None:
            rows.append([recipe, "not run", *[""] * len(abouts)])
    names_of: dict[str, list[str]] = {}
    for name, about in abouts.items():
        names_of.setdefault(about, []).append(name)
    notes = [f"{'; '.join(names)}: {about}" for about, names in names_of.items() if about]
    return "\n\n".join([markdown(rows), *notes])


def number_json(table: NumberTable) -> dict[str, Any]:
    return {recipe: row and [cell.as_json() for cell in row] for recipe, row in _cells(table).items()}


def _cells(table: NumberTable) -> dict[str, list[Cell] | None]:
    """By recipe; None where nothing is finished."""
    return {
        recipe: None
        if numbers is None
        else [
            Cell(name, measure.about, row) for name, measure in numbers for row in estimates.shown_measure(measure).rows
        ]
        for recipe, numbers in table.items()
    }


def _abouts(cells: Mapping[str, Sequence[Cell] | None]) -> dict[str, str]:
    """All numbers, and how each was computed where a metric reports that."""
    abouts: dict[str, dict[str, None]] = {}
    for cell in (cell for row in cells.values() for cell in row or []):
        abouts.setdefault(cell.name, {}).update({cell.about: None} if cell.about else {})
    return {name: "; ".join(texts) for name, texts in abouts.items()}
