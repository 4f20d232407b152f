"""One row of a data set: its columns by dotted names, and its form in error messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


class BadRow(Exception):
    """A row that does not fit the format, though its columns exist."""


class LeftOut(Exception):
    """A row that makes no sample although it fits; the argument is the reason."""


def preview(row: Row) -> str:
    """Return a row as text, one line per column, with long values cut."""
    width = max((len(name) for name in row), default=0)
    return "\n".join(f"  {name:<{width}}  {short(value)}" for name, value in row.items())


def short(value: Any, length: int = 90) -> str:
    """Return a value as JSON, cut."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length else text[: length - 1] + "…"


class Missing(Exception):
    """Raised if there is no such column. The argument is the part of the name that was not found."""


def look(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column, e.g. `query` or `passages.passage_text`.

    In a list of mappings, the name is looked up in every item: `evidences.evidence` of `[{evidence: a}, {evidence: b}]`
    is `[a, b]`, as for a mapping of lists. A name inside null is null. A column whose whole name has dots takes
    precedence. Raises `Missing`.
    """
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        value = _step(value, part)
    return value


def cell(row: Row, column: str) -> Any:
    """Return the result of `look` for a column that the first row has. Raises `BadRow`."""
    try:
        return look(row, column)
    except Missing:
        raise BadRow(f'no column "{column}", which the first row has') from None


def as_id(value: Any, column: str | None) -> str:
    """Return the identifier of a row. Raises `BadRow` for null."""
    if value is None:
        raise BadRow(f'"{column}" is null: wants what identifies the row')
    return str(value)


class Ids:
    """The ids of samples. Each may occur only once, since samples are compared and joined by id."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def add(self, name: str, place: str) -> None:
        """Raise `BadRow` if another place has this id."""
        if name in self._places:
            raise BadRow(f"the id {short(name)} is already that of {self._places[name]}")
        self._places[name] = place


def has(row: Mapping[str, Any], name: str) -> bool:
    """Return True if `look` finds the column."""
    try:
        look(row, name)
    except Missing:
        return False
    return True


def _step(value: Any, part: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        if part not in value:
            raise Missing(part)
        return value[part]
    if isinstance(value, list):
        return [_step(item, part) for item in value]
    raise Missing(part)
