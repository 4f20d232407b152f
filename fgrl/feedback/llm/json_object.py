"""JSON objects in a text that may hold other text around them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_OPENING = re.compile(r'\{(?=\s*(?:["}]|\Z))')
"""A brace after which an object may go on: with a key or with its end."""
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)|[{}]', re.DOTALL)


def first_object(text: str) -> tuple[int, int] | None:
    """Return the start and end of the first complete JSON object of a text (`text[start:end]`); None as long as there
    is none.

    Braces inside strings do not count, a backslash in a string removes the special meaning of the next character, and
    line breaks are allowed inside strings. Text that starts with a brace and is not JSON, such as `{x}` in prose or
    code, is passed over; an object inside it can then be the first. An object is outermost: as long as it is open,
    objects inside it do not count. So a growing text has its first object from the character that completes it, and
    this object never changes.
    """
    return next(objects(text), None)


def objects(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each outermost JSON object of a text, in order, with the rules of `first_object`."""
    behind = 0
    for opening in _OPENING.finditer(text):
        start = opening.start()
        if start < behind:
            continue
        end = _balanced(text, start)
        if end is None:
            return
        if _is_json(text[start:end]):
            yield start, end
            behind = end


def _balanced(text: str, start: int) -> int | None:
    """Return the position after the brace that closes the brace at `start`; None if nothing closes it."""
    depth = 0
    for found in _STRING_OR_BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
