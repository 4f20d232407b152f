"""Lists and mappings in data sets, which are sometimes stored as text."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any

from fgrl.data.row import BadRow, short


def parsed(value: Any, column: str) -> Any:
    """Return the value of a text that is JSON, or Python's notation of lists and mappings (read as data, not run): some
    data sets store values as text. Anything else stays unchanged. Raises `BadRow` for text that is neither.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        pass
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise BadRow(f'"{column}" is {short(value)}: wants JSON ({type(error).__name__})') from None


def as_list(value: Any, column: str) -> list[Any]:
    """Return a list, also if the data has it as text. Raises `BadRow`."""
    items = parsed(value, column)
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise BadRow(f'"{column}" is {short(value)}: wants a list')
    return list(items)


def as_texts(value: Any, column: str, wish: str = "a list of texts") -> list[str]:
    """Return a list of texts that are not blank, without the white space around them. Raises `BadRow`."""
    items = as_list(value, column)
    for item in items:
        if not isinstance(item, str) or not item.strip():
            raise BadRow(f'"{column}" has {short(item)}: wants {wish}')
    return [item.strip() for item in items]


def check_lengths(**columns: Sequence[Any]) -> None:
    """Raise `BadRow` unless all columns have the same number of items: they belong together one by one."""
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise BadRow(f"{counts}: they belong together one by one")
