"""The rows of a file, and the settings of the reader that reads it."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl import files, lazy, registry
from fgrl.data.row import Row
from fgrl.data.text_file import check_csv, parse_row, read_json_rows, read_text
from fgrl.errors import DataError, UsageError
from fgrl.kinds import Reader
from fgrl.registry import did_you_mean

parquet = lazy.load("pyarrow.parquet")

ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")


@dataclass(frozen=True)
class Table:
    """A file's rows."""

    path: Path
    rows: list[Row]
    reader: dict[str, Any]
    """The reader and the field that has the file, as `{"name": "jsonl", "path": FILE}`; FILE is absolute."""

    def reader_beside(self, folder: Path) -> dict[str, Any]:
        """`reader` with the file relative to a folder."""
        near = beside(self.path, folder)
        return {key: [near] if key == "files" else near if key == "path" and "files" not in self.reader else value
                for key, value in self.reader.items()}  # fmt: skip


def beside(path: Path, folder: Path) -> str:
    """Return a path relative to a folder, with `/`, as a recipe in that folder names it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def read_table(path: Path) -> Table:
    """Return the rows of a file. Raises `UsageError` for a file that does not exist or is of another kind, `DataError`
    for rows that cannot be read.
    """
    if not files.is_file(path):
        near = did_you_mean(path.name, files.names_in(path.parent))
        what = "it is a folder; name the file with the rows" if files.is_folder(path) else f"no such file{near}"
        raise UsageError(f"--data {path}: {what}")
    ending = path.suffix.lower()
    whole = str(path.resolve())
    if ending not in ENDINGS:
        raise UsageError(f"--data {path}: wants a file that ends with one of {', '.join(ENDINGS)}")
    if ending == ".csv":
        check_csv(path)
        rows: list[Row] = list(csv.DictReader(io.StringIO(read_text(path))))
        reader: dict[str, Any] = {"name": "hf", "path": "csv", "files": [whole]}
    elif ending == ".parquet":
        rows = _of_parquet(path)
        reader = {"name": "hf", "path": "parquet", "files": [whole]}
    elif ending == ".json" and _is_list(path):
        rows = read_json_rows([path])
        reader = {"name": "hf", "path": "json", "files": [whole]}
    else:
        rows = read_json_rows([path])
        reader = {"name": "jsonl", "path": whole}
    if not rows:
        raise DataError(f"{path}: it has no rows")
    return Table(path, rows, reader)


def _is_list(path: Path) -> bool:
    """Return True if the file is one list of objects, rather than one object per line."""
    text = read_text(path).lstrip()
    if not text.startswith("["):
        parse_row(text.split("\n", 1)[0], path, 1)  # an object over several lines is neither
    return text.startswith("[")


def _of_parquet(path: Path) -> list[Row]:
    try:
        return parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no parquet: {error}") from None


def read_all(reader: dict[str, Any], form: str, total: int) -> tuple[list[Any], int, str]:
    """Return the samples (or pairs) that a reader makes of `total` rows, the number of rows that do not fit, and what it
    says about the first of them. Raises `DataError` when none fits.
    """
    built: Reader = registry.build("reader", {**reader, "bad_rows": "drop"})
    listener = _Listener()
    built.setup(listener)
    rows = list(built.pairs() if form == "preference" else built.read())
    return rows, total - len(rows), " ".join(listener.lines).partition("the first that does not fit: ")[2]


class _Listener:
    """Parts of a run that a reader needs."""

    limit = None

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)
