"""Base classes of rules that count something."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from fgrl.feedback.rules.rule import Relation, Rule, broken_in, kept_in
from fgrl.feedback.rules.text import CharRange
from fgrl.kinds import Scope
from fgrl.types import Span


class Counted(Rule):
    """Rule that something occurs a certain number of times.

    Too many: the occurrences beyond the bound break the rule. Too few: the rule is broken nowhere in particular. The
    wanted occurrences support the rule, up to the bound.
    """

    what: ClassVar[str]
    """Name of one occurrence, for the reasons of spans."""

    @abstractmethod
    def places(self, response: str) -> list[CharRange]:
        """Return the occurrences, from left to right."""

    @abstractmethod
    def bounds(self) -> tuple[int, int | None]:
        """Return (minimum, maximum); a maximum of None means no upper bound."""

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
    """Rule on the length of a response. It is about the whole response, so nothing in particular supports it."""

    def supporting(self, response: str) -> list[Span] | None:
        return None

    def scope(self) -> Scope:
        return "global"


def related(relation: Relation, bound: int) -> tuple[int, int | None]:
    """Return the bounds (minimum, maximum) of a relation of IFEval."""
    return (bound, None) if relation == "at least" else (0, bound - 1)
