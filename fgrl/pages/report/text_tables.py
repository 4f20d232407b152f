"""Tables as text: columns for a terminal, or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy

if TYPE_CHECKING:
    from fgrl.runs.results.table import Row, Table
tables = lazy.load("fgrl.runs.results.table")


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Return rows in left-aligned columns; the last column may have any width."""
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


def number_text(table: Table, *, as_markdown: bool = False) -> str:
    """Return the answer about the goal of a single run, a table with a line for each number (the goal first), the
    numbers that are equal everywhere in one line, and the settings of their computation.
    """
    numbers, titles = table.by_number(), list(dict.fromkeys(row.title for row in table.rows))
    first = next(iter(numbers), "")
    same = {name: rows for name, rows in numbers.items() if name != first and _is_constant(rows)}
    empty = [name for name, rows in numbers.items() if all(row.value.mean is None for row in rows)]
    shown = {name: rows for name, rows in numbers.items() if name not in (*same, *empty)}
    models = list(dict.fromkeys(row.model for rows in shown.values() for row in rows))
    lines = _by_model(shown, models) if len(titles) == 1 and len(models) < 3 else _by_recipe(shown, len(titles) > 1)
    changed = [row for row in numbers.get(first, ()) if row.difference and row.difference.mean is not None]
    parts = []
    if len(titles) == 1 and changed:
        sides = ((row.model, row.evaluation.baseline, row.better, {"": row.difference}) for row in changed)
        parts.append("\n".join(tables.answer(first, *side) for side in sides))
    parts += [(markdown if as_markdown else columns)(lines)] if shown else []
    if same:
        parts.append(
            f"the same everywhere: {', '.join(f'{name} {rows[0].value.value}' for name, rows in same.items())}"
        )
    parts += [f"without values: {', '.join(empty)}"] if empty else []
    abouts: dict[str, dict[str, None]] = {}
    for name, rows in shown.items():
        for about in dict.fromkeys(row.about for row in rows if row.about):
            abouts.setdefault(about, {}).setdefault(name)
    parts += ["\n".join(f"{', '.join(names)}: {about}" for about, names in abouts.items())] if abouts else []
    return "\n\n".join([*parts, *([f"not run: {', '.join(table.not_run)}"] if table.not_run else [])])


def _is_constant(rows: Sequence[Row]) -> bool:
    """Return True if all models have the same value, without variation."""
    ends = {end for row in rows for end in (row.value.mean, row.value.low, row.value.high)}
    return len(ends - {None}) == 1 and (len(rows) > 1 or None not in ends)


def _by_model(numbers: Mapping[str, Sequence[Row]], models: Sequence[str]) -> list[list[str]]:
    """Return a line for each number, with a column for each model, and the difference."""
    lines = [["", *models, "difference"]]
    for name, rows in numbers.items():
        values = {row.model: row.value.with_interval for row in rows}
        lines.append([name, *(values.get(model, "") for model in models), "".join(map(_change, rows))])
    return lines if any(line[-1] for line in lines[1:]) else [line[:-1] for line in lines]


def _by_recipe(numbers: Mapping[str, Sequence[Row]], several: bool) -> list[list[str]]:
    """Return a line for each number of each recipe and model. The name of a number is only on its first line."""
    lines = [["", "recipe", "model", "value", "difference"]]
    for name, rows in numbers.items():
        names = [name, *[""] * len(rows)]
        own = zip(names, rows, strict=False)
        lines += [[text, row.title, row.model, row.value.with_interval, _change(row)] for text, row in own]
    return lines if several else [[line[0], *line[2:]] for line in lines]


def number_json(table: Table) -> dict[str, Any]:
    """Return a list of its numbers for each recipe, or None if nothing is finished."""
    return dict.fromkeys(table.not_run) | {
        title: [
            {
                "model": row.model,
                "number": table.shown(row),
                "text": row.value.with_interval,
                "change": f"difference {change}" if (change := _change(row)) else "",
                "about": row.about,
                **{end: value for end, value in row.ends.items() if row.difference or "change" not in end},
            }
            for row in table.rows
            if row.title == title
        ]
        for title in dict.fromkeys(row.title for row in table.rows)
    }


def _change(row: Row) -> str:
    """Return `+0.38 [0.23 to 0.52]`, or an empty text if there is no change."""
    return "" if row.difference is None or row.difference.mean is None else row.difference.change_with_interval
