"""The candidate program in a response.

1. Fenced blocks (three or more backticks or tildes) that are labelled as Python, or else those without a label. A block whose
   fence is not closed ends with the response.
2. Of several blocks, the last that defines the wanted function. If none does, or no function is wanted, the last block.
3. The whole response, if it has no block.
4. The program ends before the first of the stop texts.

If a program is completed (`complete`), code that defines the wanted function comes after the text to complete; other
code continues that text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

FENCE = re.compile(r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<label>[\w+-]*)[^\n]*$", re.MULTILINE)
PYTHON = ("python", "py", "python3")


def extract(response: str, function: str | None = None, stop: Sequence[str] = ()) -> str:
    """Return the program of a response, with its indentation; see the module's text for the rules."""
    start, end = place(response, function, stop)
    return response[start:end]


def place(response: str, function: str | None = None, stop: Sequence[str] = ()) -> tuple[int, int]:
    """Return the place of the program in a response: (start, end), in code points."""
    blocks = _fences(response)
    python = [(start, end) for label, start, end in blocks if label in PYTHON]
    chosen = python or [(start, end) for label, start, end in blocks if not label]
    defining = [(start, end) for start, end in chosen if function and defines(response[start:end], function)]
    start, end = (defining or chosen or [(0, len(response))])[-1]
    ends = [found for text in stop if (found := response.find(text, start, end)) >= 0]
    return start, min(ends, default=end)


def complete(start: str, code: str, function: str) -> str:
    """Return the program that begins with `start`, a function's head with its docstring. `code` continues it, or
    contains the whole function.
    """
    return f"{start.rstrip()}\n\n\n{code}" if defines(code, function) else start + code


def defines(code: str, function: str) -> bool:
    """Return True if a line defines the function, without indentation."""
    return re.search(rf"^(?:async\s+)?def\s+{re.escape(function)}\s*\(", code, re.MULTILINE) is not None


def fenced(text: str) -> list[tuple[str, str]]:
    """Return (label in lower case, code) of every fenced block, in order."""
    return [(label, text[start:end]) for label, start, end in _fences(text)]


def _fences(text: str) -> list[tuple[str, int, int]]:
    """Return (label in lower case, start, end) of the content of every fenced block, in order."""
    blocks: list[tuple[str, int, int]] = []
    opening: re.Match[str] | None = None
    for match in FENCE.finditer(text):
        if opening is None:
            opening = match
        elif match["fence"].startswith(opening["fence"]) and not match["label"]:
            blocks.append(_between(opening, match.start()))
            opening = None
    if opening is not None:
        blocks.append(_between(opening, len(text)))
    return blocks


def _between(opening: re.Match[str], end: int) -> tuple[str, int, int]:
    return opening["label"].lower(), min(opening.end() + 1, end), end
