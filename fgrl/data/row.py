"""One row of a data set: what it is called in errors, and how it looks there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


class BadRow(Exception):
    """A row that does not fit the format, though its columns exist."""


def preview(row: Row) -> str:
    """A row as text, one line per column, long values cut."""
    width = max((len(name) for name in row), default=0)
    return "\n".join(f"  {name:<{width}}  {short(value)}" for name, value in row.items())


def short(value: Any, length: int = 90) -> str:
    """A value as JSON, cut."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length else text[: length - 1] + "…"
