"""Reading of a run's files that may be missing, incomplete or damaged: a note instead of an exception."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from fgrl.base.visible import quantity
from fgrl.types import Record

T = TypeVar("T")
R = TypeVar("R", bound=Record)


def read_json(path: Path, notes: list[str], what: str = "") -> dict[str, Any]:
    """Return a JSON object, or an empty one with a note if it cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        notes.append(f"{path.name} cannot be read ({error.strerror})" + (f": {what}." if what else "."))
        return {}
    except ValueError as error:
        notes.append(f"{path.name} is not JSON: {error}.")
        return {}
    if not isinstance(value, dict):
        notes.append(f"{path.name} does not contain a JSON object.")
        return {}
    return value


def read_lines(path: Path, notes: list[str], where: str) -> Iterator[dict[str, Any]]:
    """Yield JSON objects, one per line. Other lines (a killed process leaves half a line) are counted in a note."""
    return _read(path, _object, notes, where)


def read_records(path: Path, record: type[R], notes: list[str], where: str) -> Iterator[R]:
    """Yield records, one per line. Other lines are counted in a note."""
    return _read(path, record.model_validate_json, notes, where)


def _read(path: Path, parse: Callable[[str], T], notes: list[str], where: str) -> Iterator[T]:
    broken = 0
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    value = parse(line)
                except ValueError:
                    broken += bool(line.strip())
                    continue
                yield value
    except OSError as error:
        notes.append(f"{where}: {path.name} cannot be read ({error.strerror}).")
    if broken:
        notes.append(f"{where}: {quantity(broken, 'line')} of {path.name} could not be read and were left out.")


def _object(line: str) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def mapping(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def finite(value: object) -> float | None:
    """Return `value` as a float if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer larger than any float
        return None
