"""Rules that count something."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from fgrl.feedback.rules.rule import Relation, Rule, broken_in, kept_in
from fgrl.feedback.rules.text import CharRange
from fgrl.kinds import Scope
from fgrl.types import Span


class Counted(Rule):
    """Something occurs so many times.

    Too many: those beyond the bound break the rule. Too few: it is broken nowhere in particular. Whatever is asked for
    speaks for the rule where it occurs, up to the bound.
    """

    what: ClassVar[str]
    """One of what is counted, for the reasons of spans."""

    @abstractmethod
    def places(self, response: str) -> list[CharRange]:
        """Where it occurs, from left to right."""

    @abstractmethod
    def bounds(self) -> tuple[int, int | None]:
        """(at least, at most); None = no upper bound."""

    def keeps(self, response: str) -> bool:
        low, high = self.bounds()
        count = len(self.places(response))
        return low <= count and (high is None or count <= high)

    def breaking(self, response: str) -> list[Span] | None:
        low, high = self.bounds()
        places = self.places(response)
        if len(places) < low:
            return None
        if high is None or len(places) <= high:
            return []
        if high < 0:  # "less than 0" cannot be kept
            return broken_in(places, self.what) or None
        return broken_in(places[high:], f"{self.what} beyond {high}")

    def supporting(self, response: str) -> list[Span] | None:
        low, high = self.bounds()
        if low <= 0:
            return None
        return kept_in(self.places(response)[:high], self.what)

    def marks_breaks(self) -> bool:
        return self.bounds()[1] is not None

    def scope(self) -> Scope:
        return "positive" if self.bounds()[0] > 0 else "negative"


class Length(Counted):
    """How much of it a response has: that is about the whole response, so nothing in particular speaks for the rule."""

    def supporting(self, response: str) -> list[Span] | None:
        return None

    def scope(self) -> Scope:
        return "global"


def related(relation: Relation, bound: int) -> tuple[int, int | None]:
    """IFEval's relation as (at least, at most)."""
    return (bound, None) if relation == "at least" else (0, bound - 1)
