"""What the written rules share: an empty answer breaks every one of them."""

from __future__ import annotations

from abc import abstractmethod

from fgrl.components.kinds import Verifier
from fgrl.registry import name_of
from fgrl.types import Span


class Rule(Verifier):
    """A rule on the text alone."""

    @abstractmethod
    def keeps(self, response: str) -> bool:
        """Does a response that is not empty keep the rule?"""

    @abstractmethod
    def breaking(self, response: str) -> list[Span] | None:
        """Where a response that is not empty breaks the rule: none, some spans, or None = broken but nowhere in
        particular."""

    def title(self) -> str:
        """The rule in one line, for tables."""
        return name_of(self)[1]

    def check(self, response: str) -> bool:
        return bool(response.strip()) and self.keeps(response)

    def violations(self, response: str) -> list[Span] | None:
        return self.breaking(response) if response.strip() else None


def title(rule: Verifier) -> str:
    """A rule's one line, also for verifiers that are no `Rule`."""
    return rule.title() if isinstance(rule, Rule) else name_of(rule)[1]


def broken_at(start: int, end: int, why: str) -> Span:
    """Characters that break a rule."""
    return Span(start=start, end=end, label=-1.0, reasons=[why])
