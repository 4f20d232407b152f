"""Data sets whose JSON files are read as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fgrl.data.hub import Hub, download
from fgrl.data.row import Row
from fgrl.errors import DataError

JSON_FILES = (".json", ".jsonl")


class JsonHub(Hub):
    """Rows of a data set; JSON files are read as they are, whatever types their columns have, others by `datasets`."""

    HUB_FILES: ClassVar[tuple[str, ...]] = ()
    """JSON files on the hub whose columns have not one type each."""

    def rows(self) -> tuple[str, Sequence[Row]]:
        names = list(self.data_files or self.HUB_FILES)
        if self.files and self.path == "json":
            return ", ".join(self.files), read_json_rows(self.files)
        if self.files or not names or not all(name.endswith(JSON_FILES) for name in names):
            return super().rows()
        folder = Path(self.path)
        if folder.is_dir():
            paths = [folder / name for name in names]
            return ", ".join(map(str, paths)), read_json_rows(paths)
        where = ", ".join(f"{self.path}/{name}" for name in names)
        paths = download(self.path, names, self.revision)
        if self.revision is None:
            self.say(f"{where}: no `revision` is pinned")
        return where, read_json_rows(paths)

    def at(self, rows: Any, numbers: Sequence[int]) -> Iterator[Row]:
        return (rows[number] for number in numbers) if isinstance(rows, list) else super().at(rows, numbers)


def read_json_rows(paths: Sequence[str | Path]) -> list[Row]:
    """The rows of files that hold a list of objects each, or one object per line, as they are: a column
    may have another type in each row, which Arrow does not allow. Raises `DataError` with the place."""
    return [row for path in paths for row in _rows_of(Path(path))]


def _rows_of(path: Path) -> list[Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if text.lstrip().startswith("["):
        rows = _json(text, str(path), 1)
        places = [f"{path}: row {number}" for number in range(len(rows))]
    else:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        rows = [_json(line, str(path), number) for number, line in lines]
        places = [f"{path}:{number}" for number, _ in lines]
    for row, place in zip(rows, places, strict=True):
        if not isinstance(row, dict):
            raise DataError(f"{place}: wants a JSON object, got {type(row).__name__}")
    return rows


def _json(text: str, path: str, first: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{first + error.lineno - 1}:{error.colno}: no JSON: {error.msg}") from None
    except RecursionError:
        raise DataError(f"{path}:{first}: no JSON: nested too deep") from None
