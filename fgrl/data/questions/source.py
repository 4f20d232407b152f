"""The rows of a question set, read by role (`question`, `answers`, `context`, ...) instead of by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fgrl.data.row import BadRow, Row, cell, short
from fgrl.types import PairVerdict


@dataclass(frozen=True)
class Item:
    """The content of a row."""

    question: str
    """The question: no two samples ask the same in the same words."""
    values: dict[str, str]
    """Texts for the placeholders of the prompt file."""
    answers: list[str]
    meta: dict[str, Any] = field(default_factory=dict)
    responses: list[str] = field(default_factory=list)
    """Answers by models or people."""
    verdicts: list[PairVerdict] | None = None


@dataclass
class Source:
    """Rows, and the columns that were found in them."""

    where: str
    rows: Any
    columns: dict[str, str]
    """Column by role."""
    meta: list[str]
    label_names: dict[str, list[str]] = field(default_factory=dict)
    """Names of the whole numbers of a column, by column, if the data set has them."""

    def value(self, row: Row, role: str) -> Any:
        """Return the row's value for a role; None if the data has no column for it. Raises `BadRow`."""
        return None if role not in self.columns else cell(row, self.columns[role])

    def text(self, row: Row, role: str) -> str:
        """Return a text that is not blank. Raises `BadRow`."""
        value = self.value(row, role)
        if not isinstance(value, str) or not value.strip():
            raise BadRow(f'"{self.columns[role]}" is {short(value)}: wants a text that is not blank')
        return value.strip()

    def texts(self, row: Row, role: str) -> list[str]:
        """Return a text or a list of texts, without empty texts and repeats. Raises `BadRow`."""
        value = self.value(row, role)
        listed = value if isinstance(value, list) else [value]
        if not all(item is None or isinstance(item, str) for item in listed):
            raise BadRow(f'"{self.columns[role]}" is {short(value)}: wants a text or a list of texts')
        return list(dict.fromkeys(item.strip() for item in listed if item and item.strip()))

    def narrowed(self) -> Source:
        """Return the source with only the columns that are read, so that long texts of other columns are never
        decoded.
        """
        if not hasattr(self.rows, "flatten"):
            return self
        flat = self.rows.flatten()
        names = {*self.columns.values(), *self.meta}
        owners = {name: _owner(name, flat.column_names) for name in names}
        for name, column in owners.items():
            if column == name and hasattr(flat.features[name], "names"):
                self.label_names[name] = flat.features[name].names
        if None not in owners.values():
            self.rows = flat.select_columns(sorted({column for column in owners.values() if column is not None}))
        return self


def _owner(name: str, columns: Sequence[str]) -> str | None:
    """Return the flat column that contains `name`."""
    return next((column for column in columns if f"{name}.".startswith(f"{column}.")), None)
