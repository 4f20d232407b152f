"""A table: rows as dictionaries, drawn in a notebook and printed in a terminal, and a pandas DataFrame on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from fgrl import lazy
from fgrl.errors import Unavailable, UsageError
from fgrl.report.escaping import render
from fgrl.report.text_tables import columns
from fgrl.results.text import number
from fgrl.visible import visible

MOST_ROWS = 200
"""Rows that are drawn; all of them are in the table."""
pandas = lazy.load("pandas")


class Table(list[dict[str, Any]]):
    """Rows as dictionaries with the same keys. None is a missing value.

    `table[0]["mean"]` is a value; `table.to_pandas()` is the same as a DataFrame. At the end of a notebook's cell the
    table draws itself, and `print(table)` prints it.
    """

    def __init__(
        self, rows: Iterable[Mapping[str, Any]] = (), names: Sequence[str] = (), hidden: Sequence[str] = ()
    ) -> None:
        """names: of the columns; empty: the keys of all rows, in order of appearance. hidden: columns that are not
        drawn.
        """
        super().__init__(dict(row) for row in rows)
        self.names = list(names) or list(dict.fromkeys(name for row in self for name in row))
        self.hidden = tuple(hidden)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame. Raises `fgrl.errors.Unavailable` where pandas is not installed."""
        try:
            return pandas.DataFrame(list(self), columns=self.names)
        except ModuleNotFoundError as error:
            if error.name != "pandas":
                raise
            raise Unavailable("to_pandas needs pandas, which is not installed: pip install pandas") from None

    def where(self, **values: Any) -> Table:
        """Return the rows that have these values: `table.where(model="policy")`. Raises `UsageError` for an unknown
        column.
        """
        if unknown := [name for name in values if name not in self.names]:
            raise UsageError(f'the table has no column "{unknown[0]}"; its columns: {", ".join(self.names)}')
        rows = [row for row in self if all(row.get(name) == value for name, value in values.items())]
        return Table(rows, self.names, self.hidden)

    def __repr__(self) -> str:
        if not self:
            return "(empty)"
        shown = self._shown_names()
        rows = [[_cell(row.get(name)) for name in shown] for row in self[:MOST_ROWS]]
        more = [f"  ... {len(self) - MOST_ROWS} more rows"] if len(self) > MOST_ROWS else []
        return visible("\n".join([columns([shown, *rows], indent=""), *more]))

    def _repr_html_(self) -> str:
        if not self:
            return "<p>(empty)</p>"
        shown = self._shown_names()
        head = Markup("").join(Markup("<th>{}</th>").format(name) for name in shown)
        body = Markup("").join(
            Markup("<tr>{}</tr>").format(Markup("").join(_html_cell(row.get(name)) for name in shown))
            for row in self[:MOST_ROWS]
        )
        more = Markup("<p>… {} more rows</p>").format(len(self) - MOST_ROWS) if len(self) > MOST_ROWS else Markup("")
        return str(Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}").format(head, body, more))

    def _shown_names(self) -> list[str]:
        """Return the columns that are drawn: those with a value in some row."""
        drawn = [name for name in self.names if name not in self.hidden]
        return [name for name in drawn if any(row.get(name) not in (None, "") for row in self)]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, 4)
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell(item)}" for name, item in value.items())
    return str(value)


def _html_cell(value: Any) -> Markup:
    right = isinstance(value, int | float) and not isinstance(value, bool)
    style = Markup(' style="text-align: right"') if right else Markup("")
    return Markup("<td{}>{}</td>").format(
        style, render(_cell(value)) if isinstance(value, str) else escape(_cell(value))
    )
