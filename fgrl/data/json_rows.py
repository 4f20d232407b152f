"""Rows of JSON files, read as they are: a column may have another type in each row, which Arrow does not allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgrl.data.row import Row
from fgrl.errors import DataError


def read_json_rows(paths: Sequence[str | Path]) -> list[Row]:
    """The rows of files that hold a list of objects each, or one object per line. Raises `DataError` with the place."""
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
