"""The stretch of a text that is most similar to a quote.

Similarity of a quote of m and a stretch of k characters is 2 L / (m + k), where L is the length of their longest common
subsequence: the normalised indel similarity. Its maximum over all stretches is found exactly, as the maximum of a ratio
(Dinkelbach 1967): for a guess s of it, max 2 L - s (m + k) is one alignment of the quote with the whole text, and the
stretch with the maximum has a similarity of at least s, which is the next guess.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fgrl.base import lazy

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy.load("numpy")
fuzz = lazy.load("rapidfuzz.fuzz")

SAME = 1e-9
"""Tolerance: similarities that differ by less are equal."""


def most_similar(quote: str, text: str, least: float) -> tuple[int, int] | None:
    """Return the stretch `start:end` of a text with the highest similarity to the quote; None if no stretch has the
    similarity `least` (above 0). Of several equal stretches, return the first to end, and of these the longest.
    """
    guess, best = least, None
    while True:
        value, end = _alignment(quote, text, guess)
        if value < -SAME:
            return best
        longest = math.floor(len(quote) * (2 / guess - 1)) + 1  # all of the quote in a longer one would be less similar
        begins = range(max(0, end - longest), end)
        scores = [fuzz.ratio(quote, text[begin:end]) / 100 for begin in begins]
        similar = max(scores, default=0.0)
        if best is not None and similar <= guess + SAME:
            return best
        if similar < least - SAME:
            return None
        guess, best = similar, (begins[scores.index(similar)], end)


def _alignment(quote: str, text: str, cost: float) -> tuple[float, int]:
    """Return the maximum of 2 L - cost (m + k) over all stretches, and the end of the first stretch that reaches it.

    Row i of the table has, for each end of a stretch, the best value of the first i characters of the quote, without
    their own cost. Along a row, each further character of the text costs `cost`, so the row is a running maximum.
    """
    letters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    slope = cost * np.arange(len(text) + 1)
    same = {letter: np.where(letters == ord(letter), 2.0 - cost, -math.inf) for letter in set(quote)}
    row = np.zeros(len(text) + 1)
    for letter in quote:
        matched = row.copy()
        np.maximum(matched[1:], row[:-1] + same[letter], out=matched[1:])
        row = np.maximum.accumulate(matched + slope) - slope
    end = int(np.argmax(row > row.max() - SAME))
    return float(row[end]) - cost * len(quote), end
