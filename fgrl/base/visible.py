"""Safe display of text of models and data: invisible characters, and characters that change how others are displayed,
are replaced by marks.

Not replaced: the zero-width joiner and variation selectors, which emoji consist of, and line feeds and tabs, which the
page and the terminal handle.
"""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, among them NUL, carriage return and escape
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f"  # soft hyphen, fillers, directional marks
    "\u2028-\u202e\u2060-\u206f"  # separators, overrides and isolates of direction, invisible operators
    "\u3164\ufeff\uffa0\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f"  # lone surrogates, tags
    "]"
)
"""Characters that are invisible, move the cursor, or change the order of the following text."""


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun: `1 stage`, `2 stages`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def mark(character: str) -> str:
    """Return a visible replacement for a hidden character: a control picture (`␛`) or its code point (`⟨U+202E⟩`)."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def visible(text: str) -> str:
    """Return `text` with every hidden character replaced by its mark."""
    return HIDDEN.sub(lambda match: mark(match[0]), text)


def without_lone_surrogates(text: str) -> str:
    """Replace each lone half of a surrogate pair, which JSON can represent but a file cannot, by the replacement
    character.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
