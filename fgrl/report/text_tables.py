"""Tables as text: columns for a terminal, or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fgrl.results.estimates import ShownEstimate
    from fgrl.results.number_tables import NumberTable
    from fgrl.results.numbers import ModelNumber


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Rows in left-aligned columns; the last column may have any width."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*[row[:-1] for row in table], strict=True)] if table else []
    return "\n".join(
        (indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in table
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number_blocks(table: NumberTable) -> str:
    """Return a block for each number, so that recipes stand below each other in any terminal."""
    blocks = []
    for name, about in _abouts(table).items():
        rows = [
            (recipe, row.model, row.value.with_interval, _change(row))
            for recipe, numbers in table.items()
            for number, measure in numbers or []
            if number == name
            for row in measure.models
        ]
        blocks.append(f"{name}{f' ({about})' if about else ''}\n{columns(rows)}")
    waiting = [recipe for recipe, numbers in table.items() if numbers is None]
    if waiting:
        blocks.append(f"not run: {', '.join(waiting)}")
    return "\n\n".join(blocks)


def number_markdown(table: NumberTable) -> str:
    """Return a row for each recipe and model, a column for each number; below it how the numbers were computed."""
    abouts = _abouts(table)
    rows = [["recipe", "model", *abouts]]
    for recipe, numbers in table.items():
        values: dict[str, dict[str, str]] = {}
        for name, measure in numbers or []:
            for row in measure.models:
                values.setdefault(row.model, {})[name] = row.value.with_interval
        rows += [[recipe, model, *(own.get(name, "") for name in abouts)] for model, own in values.items()]
        if numbers is None:
            rows.append([recipe, "not run", *[""] * len(abouts)])
    names_of: dict[str, list[str]] = {}
    for name, about in abouts.items():
        names_of.setdefault(about, []).append(name)
    notes = [f"{'; '.join(names)}: {about}" for about, names in names_of.items() if about]
    return "\n\n".join([markdown(rows), *notes])


def number_json(table: NumberTable) -> dict[str, Any]:
    """By recipe a list of its numbers, None where nothing is finished."""
    return {
        recipe: numbers
        and [
            {"model": row.model, "number": name, "text": row.value.with_interval, "change": _change(row)}
            | {"about": measure.about, **_ends(row.value, ""), **_ends(row.difference, "change_")}
            for name, measure in numbers
            for row in measure.models
        ]
        for recipe, numbers in table.items()
    }


def _change(row: ModelNumber) -> str:
    """`difference +0.38 [0.23 to 0.52]`; empty where there is none."""
    difference = row.difference
    if difference is None or difference.mean is None:
        return ""
    return f"difference {difference.change_with_interval}"


def _ends(shown: ShownEstimate | None, prefix: str) -> dict[str, float | None]:
    """Mean and interval of an estimate."""
    ends = {} if shown is None else shown.model_dump(include={"mean", "low", "high"})
    return {f"{prefix}{end}": value for end, value in ends.items()}


def _abouts(table: NumberTable) -> dict[str, str]:
    """All numbers, and how each was computed where a metric reports that."""
    abouts: dict[str, dict[str, None]] = {}
    for name, measure in (number for numbers in table.values() for number in numbers or []):
        abouts.setdefault(name, {}).update({measure.about: None} if measure.about else {})
    return {name: "; ".join(texts) for name, texts in abouts.items()}
