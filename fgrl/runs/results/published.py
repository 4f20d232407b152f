"""Numbers that a paper prints, from a data file (`docs/papers/data/*.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from fgrl.base.errors import UsageError
from fgrl.registry import Settings, unknown
from fgrl.registry.settings_file import Shelf, read_settings

GROUP = " / "
"""Separator between a group of rows and a row."""


class PublishedTable(Settings):
    """Table of a paper. Values are texts, as printed."""

    about: str
    """Description of the comparison."""
    where: str
    """Section or page."""
    model: str = ""
    """Models of its rows."""
    budget: str = ""
    """Description of the training and the measurement."""
    columns: list[str] = []
    """Titles, as printed."""
    rows: dict[str, Any] = {}
    """Values by row, as printed; for a group of rows, a mapping."""


class PublishedNumbers(Settings):
    """All tables of a paper."""

    title: str
    """Title of the paper."""
    text: str = ""
    """File of the paper's text with which the numbers were checked."""
    tables: dict[str, PublishedTable] = Field(min_length=1)
    """Tables by number."""


@dataclass(frozen=True)
class Published:
    """Table of a paper, read by row and column."""

    title: str
    number: str
    table: PublishedTable

    @property
    def rows(self) -> dict[str, list[str]]:
        """Return the values by row; `GROUP / ROW` in a group."""
        flat: dict[str, list[str]] = {}
        for name, value in self.table.rows.items():
            inside = value.items() if isinstance(value, dict) else [(None, value)]
            flat |= {name if row is None else f"{name}{GROUP}{row}": values for row, values in inside}
        return flat

    def value(self, row: str, column: str) -> str | None:
        """Return a value as printed; None if the table has no such row or column, or if the cell is empty."""
        values = self.rows.get(row)
        if values is None or column not in self.table.columns:
            return None
        return values[self.table.columns.index(column)] or None


def read_published(address: str, folder: Path) -> Published:
    """Return the table that `FILE::NUMBER` names, relative to `folder`. Raises `Problems` and `UsageError`."""
    file, _, number = address.rpartition("::")
    numbers = read_settings(PublishedNumbers, str(folder / file), Shelf(folder))
    if number not in numbers.tables:
        raise UsageError(f"{file}: {unknown('table', number, list(numbers.tables))}")
    return Published(numbers.title, number, numbers.tables[number])
