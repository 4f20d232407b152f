"""Numbers, durations and names of characters as readable text."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence


def name(character: str) -> str:
    """Return the code point and the Unicode name of a hidden character."""
    code = ord(character)
    return f"U+{code:04X} {unicodedata.name(character, 'control character' if code < 0xA0 else 'not a character')}"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number as text: `digits` significant digits, a real minus sign, thousands separated; a dash for None."""
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
    """Return a number with an exponent: `3.0e−4`."""
    mantissa, power = f"{value:.{places}e}".split("e")
    return f"{mantissa}e{int(power)}".replace("-", "−")


def signed(value: float | None, digits: int = 3) -> str:
    """Return `number` with a plus sign if it is positive."""
    shown = number(value, digits)
    return f"+{shown}" if value is not None and value > 0 else shown


TOTAL, OF_RESPONSE = "total reward", "response reward"
"""Names of the sum of a response's token rewards, which algorithms that use token rewards train on, and of the response
reward.
"""


def reward_facts(
    response: float | None, tokens: Sequence[float | None], by_token: bool | None = None
) -> list[tuple[str, str]]:
    """Return names and numbers of a response's reward: the total of its token rewards, and the reward of the whole
    response if that is a different number (its mean over segments, for example). None and NaN are missing. If no token
    has a reward, a response reward of 0 counts as their total.

    by_token: True if a training uses the token rewards, False if the response reward: if there are two numbers, the
    name of the trained one says so. None: nothing is trained.
    """
    known = [value for value in tokens if value is not None and math.isfinite(value)]
    total = signed(math.fsum(known)) if known or (tokens and response == 0) else None
    facts = [] if total is None else [(TOTAL, total)]
    if response is not None and math.isfinite(response) and signed(response) != total:
        facts.append((OF_RESPONSE, signed(response)))
    if len(facts) < 2 or by_token is None:
        return facts
    used = TOTAL if by_token else OF_RESPONSE
    return [(name, f"{value} (trained on)" if name == used else value) for name, value in facts]


def duration(seconds: float | None) -> str:
    """Return seconds as `0.4 s`, `41 s`, `3 min 20 s`, `2 h 05 min`."""
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
