"""Text of models and data, made safe to display: a character that is invisible, or changes how others are displayed, gets a mark.

Left alone: the zero-width joiner and variation selectors (emoji are built of them), and line feeds and tabs, about
which the page and the terminal decide for themselves.
"""

from __future__ import annotations

import math
import re
import unicodedata

HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, among them NUL, carriage return and escape
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f"  # soft hyphen, fillers, directional marks
    "\u2028-\u202e\u2060-\u206f"  # separators, overrides and isolates of direction, invisible operators
    "\u3164\ufeff\uffa0\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f"  # lone surrogates, tags
    "]"
)
"""Characters that are invisible, move the cursor, or turn the order of what follows."""


def mark(character: str) -> str:
    """A visible stand-in of a hidden character: a control picture (`␛`) or its code point (`⟨U+202E⟩`)."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def name(character: str) -> str:
    """The code point and the Unicode name of a hidden character."""
    code = ord(character)
    return f"U+{code:04X} {unicodedata.name(character, 'control character' if code < 0xA0 else 'not a character')}"


def visible(text: str) -> str:
    """`text` with every hidden character replaced by its mark."""
    return HIDDEN.sub(lambda match: mark(match[0]), text)


def number(value: float | None, digits: int = 3) -> str:
    """A number as text: `digits` significant digits, a real minus sign, thousands separated; a dash for none."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e7 or size < 1e-3:
        return exponent(value, digits - 1)
    if value == int(value):
        return f"{int(value):,}".replace("-", "−")
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{places}f}".replace("-", "−")


def exponent(value: float, places: int) -> str:
    """`3.0e−4`."""
    mantissa, power = f"{value:.{places}e}".split("e")
    return f"{mantissa}e{int(power)}".replace("-", "−")


def signed(value: float | None, digits: int = 3) -> str:
    """`number` with a plus sign where it is positive."""
    shown = number(value, digits)
    return f"+{shown}" if value is not None and value > 0 else shown


def duration(seconds: float | None) -> str:
    """Seconds as `0.4 s`, `41 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
