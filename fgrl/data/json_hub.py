"""Readers of data sets whose JSON files are parsed without `datasets`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from fgrl.data.hub import Hub, download
from fgrl.data.row import Row, as_id, cell, has
from fgrl.data.text_file import read_json_rows
from fgrl.registry import Settings

JSON_FILES = (".json", ".jsonl")


class RecordColumns(Settings):
    """Names of the columns; dots reach into nested columns."""

    id: str | None = None
    """Column with the identifier of a row; null takes the row's number."""
    meta: list[str] = []
    """Columns that are kept unchanged in `meta`."""


class JsonHub(Hub):
    """Reader of the rows of a data set. JSON files are parsed directly, whatever types their columns have; other files
    are read by `datasets`.
    """

    HUB_FILES: ClassVar[tuple[str, ...]] = ()
    """JSON files on the hub whose columns have mixed types."""

    columns: RecordColumns = RecordColumns()
    """Names of the columns, if they differ from the names on the hub."""

    def rows(self) -> tuple[str, Sequence[Row]]:
        names = list(self.data_files or self.HUB_FILES)
        if self.path == "json":
            return ", ".join(self.files), read_json_rows(self.files)
        if not self.reads_at_once():
            return super().rows()
        folder = Path(self.path)
        if folder.is_dir():
            paths = [folder / name for name in names]
            return ", ".join(map(str, paths)), read_json_rows(paths)
        where, paths = download(self.path, names, self.revision, self.say)
        return where, read_json_rows(paths)

    def reads_at_once(self) -> bool:
        names = self.files or self.data_files or self.HUB_FILES
        return self.path == "json" or (
            bool(names) and not self.files and all(name.endswith(JSON_FILES) for name in names)
        )

    # ------------------------------------------------------------------------------------------------------------------

    def optional(self) -> frozenset[str]:
        """Return the roles whose columns need not exist."""
        return frozenset()

    def roles(self) -> list[tuple[str, str]]:
        """Return (role, column) of all fields of `columns`, with the id at the end."""
        given = self.columns.model_dump(exclude_none=True)
        named = [(role, [names] if isinstance(names, str) else names) for role, names in given.items()]
        return sorted(((role, name) for role, names in named for name in names), key=lambda column: column[0] == "id")

    def check_columns(self, where: str, rows: Any) -> None:
        """Raise `DataError` for a column that the first row does not have."""
        first = next(iter(self.at(rows, [0])))
        for role, name in self.roles():
            if role not in self.optional() and not has(first, name):
                by_number = "null for the row's number, or to what identifies a row"
                meaning = by_number if role == "id" else "the column to read"
                raise self.no_column(where, first, f'no column "{name}"', role, meaning)

    def value(self, row: Row, role: str) -> Any:
        """Return the value of a role in the row; None for an optional column that does not exist. Raises `BadRow`."""
        name = getattr(self.columns, role)
        if name is None or (role in self.optional() and not has(row, name)):
            return None
        return cell(row, name)

    def name_of_row(self, row: Row, number: int) -> str:
        """Return the identifier of the row. Raises `BadRow`."""
        return as_id(number if self.columns.id is None else self.value(row, "id"), self.columns.id)

    def kept(self, row: Row) -> dict[str, Any]:
        """Return the columns that are kept in `meta`. Raises `BadRow`."""
        return {column: cell(row, column) for column in self.columns.meta}
