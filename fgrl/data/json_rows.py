"""Rows of JSON files as they stand: no column has to have one type in all rows, as Arrow wants it."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fgrl.data.formats.converter import BadRow, Row, short
from fgrl.errors import DataError

LONGEST_LITERAL = 1_000_000


def plain_rows(paths: Sequence[str | Path]) -> list[Row]:
    """The rows of files that hold a list of objects each, or an object a line. Raises `DataError` with the place."""
    return [row for path in paths for row in _of_file(Path(path))]


def _of_file(path: Path) -> list[Row]:
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


def parsed(value: Any, column: str) -> Any:
    """A value that some data sets keep as text: JSON, or Python's way to write lists and mappings (read as data, not run).

    Anything else stays as it is. Raises `BadRow` for text that is neither.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        pass
    try:
        if len(value) > LONGEST_LITERAL:
            raise ValueError("it is too long")
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise BadRow(f'"{column}" is {short(value)}: wants JSON ({type(error).__name__})') from None
