"""Columns that hold the demands on a response, or the marked passages of a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fgrl.data.row import BadRow, short
from fgrl.data.rubrics.untrusted import names_a_sandbox
from fgrl.types import Annotation, Criterion, Span

T = TypeVar("T", bound=BaseModel)


def rubric(value: Any, column: str) -> list[Criterion]:
    """Return the criteria of a list. A text is a criterion that a judge decides, `{text, check}` a criterion with a
    rule. Raises `BadRow`.
    """
    entries = [{"text": entry} if isinstance(entry, str) else entry for entry in _listed(value, column)]
    if any(names_a_sandbox(entry) for entry in entries):
        raise BadRow(f'"{column}" sets `sandbox`, which only a recipe may')
    return _records(Criterion, entries, column)


def marks(value: Any, column: str, response: str) -> Annotation:
    """Return the marked passages of a response, in their order. Raises `BadRow`, also for a passage that is not in the
    response.
    """
    spans = _records(Span, [_span(entry, column, response) for entry in _listed(value, column)], column)
    if outside := [span for span in spans if span.end > len(response)]:
        raise BadRow(f'"{column}" marks up to {outside[0].end}, and the response has {len(response)} characters')
    return Annotation(spans=spans)


def _span(entry: Any, column: str, response: str) -> Any:
    if isinstance(entry, list | tuple) and len(entry) == 3:
        return dict(zip(("start", "end", "label"), entry, strict=True))
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        return entry
    start = response.find(entry["text"]) if entry["text"] else -1
    if start < 0:
        raise BadRow(f'"{column}" marks {short(entry["text"])}, which is not in the response')
    rest = {key: item for key, item in entry.items() if key != "text"}
    return {"start": start, "end": start + len(entry["text"]), **rest}


def _listed(value: Any, column: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise BadRow(f'"{column}" is {short(value)}: wants a list')
    return value


def _records(record: type[T], entries: Sequence[Any], column: str) -> list[T]:
    try:
        return [record.model_validate(entry) for entry in entries]
    except ValidationError as error:
        what = error.errors()[0]
        where = ".".join(map(str, what["loc"]))
        raise BadRow(f'"{column}" has an entry that does not fit: {where}: {what["msg"]}') from None
