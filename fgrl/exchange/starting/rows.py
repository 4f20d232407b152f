"""The rows of a file or of a data set on the hub, and the settings of the reader that reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.base import files
from fgrl.base.errors import DataError, UsageError
from fgrl.data.row import Row
from fgrl.kinds import Reader
from fgrl.kinds.specs import names_source
from fgrl.registry import did_you_mean

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
LOOKED_AT = 1000
"""Number of rows that decide the content of a column."""


@dataclass(frozen=True)
class Table:
    """Rows as their reader yields them."""

    rows: Sequence[Row]
    """The first rows."""
    count: int
    reader: dict[str, Any]
    """Reader's name and the field with the data: an absolute path, or the name of a data set on the hub."""

    def reader_beside(self, folder: Path) -> dict[str, Any]:
        """Return `reader` with the file relative to a folder."""
        if "files" in self.reader:
            return self.reader | {"files": [beside(Path(self.reader["files"][0]), folder)]}
        if self.reader["name"] == "jsonl":
            return self.reader | {"path": beside(Path(self.reader["path"]), folder)}
        return self.reader


class _Listener:
    """The parts of a run that a reader needs."""

    limit = None

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def beside(path: Path, folder: Path) -> str:
    """Return a path relative to a folder, with `/`, as a recipe in that folder names it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def read_table(path: Path) -> Table:
    """Return the rows of a file, or of a data set on the hub (`owner/name`). Raises `UsageError` for a file that does
    not exist or is of another kind, `DataError` for rows that cannot be read, `Unavailable` if the hub cannot be
    reached.
    """
    form, whole = FORMATS.get(path.suffix.lower()), str(path.resolve())
    if files.is_file(path):
        if form is None:
            raise UsageError(f"--data {path}: wants a file that ends with one of {', '.join(FORMATS)}")
        reader = {"name": "jsonl", "path": whole} if form == "jsonl" else {"name": "hf", "path": form, "files": [whole]}
    elif form is None and names_source(str(path)) and not files.exists(path.parent):
        reader = {"name": "hf", "path": path.as_posix()}
    else:
        near = did_you_mean(path.name, files.names_in(path.parent))
        what = "it is a folder; name the file with the rows" if files.is_folder(path) else f"no such file{near}"
        raise UsageError(f"--data {path}: {what}")
    built, _listener = _opened(reader | {"format": "prompts"})
    where, rows = built.rows()
    if not len(rows):
        raise DataError(f"{where}: it has no rows")
    return Table(list(built.at(rows, range(min(len(rows), LOOKED_AT)))), len(rows), reader)


def read_all(reader: dict[str, Any], total: int) -> tuple[list[Any], int, str]:
    """Return the samples (or pairs) that a reader makes of `total` rows, the number of rows that do not fit, and its
    message about the first of them. Raises `DataError` if none fits.
    """
    built, listener = _opened(reader | {"bad_rows": "drop"})
    rows = list(built.pairs() if reader["format"] == "preference" else built.read())
    return rows, total - len(rows), " ".join(listener.lines).partition("the first that does not fit: ")[2]


def _opened(settings: dict[str, Any]) -> tuple[Any, _Listener]:
    built: Reader = registry.build("reader", settings)
    listener = _Listener()
    built.setup(listener)
    return built, listener
