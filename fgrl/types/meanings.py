"""Meanings of the numbers of metrics: words, and the better side."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

Better = Literal["higher", "lower"]


Purpose = Literal["goal", "reward", "symptom"]


class Meaning(NamedTuple):
    """The meaning of a metric's number, for the report."""

    words: str
    """Meaning in plain words, as in "share of answers that satisfy the rule". `{number}` stands for the number's
    name.
    """
    better: Better | None = None
    """The better side; None if neither side is better, as for a length."""
    even: float | None = None
    """Value for two equally good models, if the number compares two models, such as 0.5 for a win rate."""


def meaning_in(meanings: Mapping[str, Meaning], number: str) -> Meaning | None:
    """Return the meaning of a number, or else of the first pattern (shell wildcards) that fits its name; None if it is
    not declared.
    """
    fitting = (meaning for pattern, meaning in meanings.items() if fnmatchcase(number, pattern))
    meaning = meanings.get(number) or next(fitting, None)
    shown = number.replace(":", ": ").replace("_", " ")
    return meaning and meaning._replace(words=meaning.words.replace("{number}", shown))
