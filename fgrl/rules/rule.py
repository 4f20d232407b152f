"""What the written rules share: an empty answer breaks every one of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from fgrl.kinds import Scope, Verifier
from fgrl.registry import name_of
from fgrl.types import Span

Relation = Literal["less than", "at least"]
"""IFEval's two relations: `less than` n excludes n, `at least` n includes it."""


class Rule(Verifier):
    """A rule on the text alone."""

    @abstractmethod
    def keeps(self, response: str) -> bool:
        """Does a response that is not empty keep the rule?"""

    def breaking(self, response: str) -> list[Span] | None:
        """Where a response that is not empty breaks the rule: none, some spans, or None = broken but nowhere in
        particular."""
        return [] if self.keeps(response) else None

    def supporting(self, response: str) -> list[Span] | None:
        """What in a response that is not empty speaks for the rule, also when it is not enough; None = nothing in
        particular could."""
        return None

    def scope(self) -> Scope:
        """`positive`: something must be there. `negative`: something must not. `global`: it is about the whole text."""
        return "global"

    def title(self) -> str:
        """The rule in one line, for tables: its name and what is set."""
        set_here = (getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set)
        return " ".join([name_of(self)[1], *map(_short, set_here)])

    def check(self, response: str) -> bool:
        return bool(response.strip()) and self.keeps(response)

    def violations(self, response: str) -> list[Span] | None:
        return self.breaking(response) if response.strip() else None

    def evidence(self, response: str) -> list[Span] | None:
        return self.supporting(response) if response.strip() else None


def broken_at(start: int, end: int, why: str) -> Span:
    """Characters that break a rule."""
    return Span(start=start, end=end, label=-1.0, reasons=[why])


def kept_at(start: int, end: int, why: str) -> Span:
    """Characters that speak for a rule."""
    return Span(start=start, end=end, label=1.0, reasons=[why])


def in_order(spans: list[Span]) -> list[Span]:
    """Spans from left to right, each once."""
    once = {(span.start, span.end, tuple(span.reasons)): span for span in spans}
    return [once[key] for key in sorted(once)]


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:36] + " ..."
