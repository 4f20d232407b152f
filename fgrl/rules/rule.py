"""The base classes of rules on the text alone. An empty answer breaks every one of them.

`Rule` is about the whole response, `Forbids` about what must not be there, `Requires` about what must.
"""

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

    def faults(self, response: str) -> list[Span]:
        """The characters that make a response break the rule; none when it is broken nowhere in particular. Only the
        faults of responses that break the rule count."""
        return []

    def breaking(self, response: str) -> list[Span] | None:
        """Where a response that is not empty breaks the rule: `[]` = it is kept, None = broken, but nowhere in particular."""
        return [] if self.keeps(response) else self.faults(response) or None

    def supporting(self, response: str) -> list[Span] | None:
        """What in a response that is not empty speaks for the rule, also when it is not enough; None = nothing in
        particular could."""
        return None

    def title(self) -> str:
        """The rule in one line, for tables: its name and the settings that were given."""
        values = (getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set)
        return " ".join([name_of(self)[1], *map(_short, values)])

    def check(self, response: str) -> bool:
        return bool(response.strip()) and self.keeps(response)

    def violations(self, response: str) -> list[Span] | None:
        return self.breaking(response) if response.strip() else None

    def evidence(self, response: str) -> list[Span] | None:
        return self.supporting(response) if response.strip() else None


class Forbids(Rule):
    """Something must not be there. The rule is kept when there is none of it, unless a subclass asks for more."""

    @abstractmethod
    def faults(self, response: str) -> list[Span]:
        """What must not be there, where it is."""

    def keeps(self, response: str) -> bool:
        return not self.faults(response)

    def scope(self) -> Scope:
        return "negative"


class Requires(Rule):
    """Something must be there. The rule is kept when there is any of it, unless a subclass asks for more."""

    @abstractmethod
    def supporting(self, response: str) -> list[Span]:
        """What must be there, where it is."""

    def keeps(self, response: str) -> bool:
        return bool(self.supporting(response))

    def scope(self) -> Scope:
        return "positive"


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
