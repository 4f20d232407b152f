"""The base classes of rules on the text alone. An empty answer breaks every one of them.

A `Rule` is about the whole response, and has `faults` if it can tell where it is broken. `Forbids` is about things that
must not be in a response, `Requires` about things that must be in it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, Protocol, runtime_checkable

from fgrl.base.errors import Undecided
from fgrl.feedback.rules.text import CharRange, View
from fgrl.kinds import Scope, Verifier
from fgrl.registry import name_of
from fgrl.types import Span

Relation = Literal["less than", "at least"]
"""IFEval's two relations: `less than` n excludes n, `at least` n includes it."""


@runtime_checkable
class FindsFaults(Protocol):
    """A rule that can name the characters that break it."""

    def faults(self, response: str) -> list[Span]:
        """Return the characters that make a response break the rule; an empty list if it is broken nowhere in
        particular. The result counts only for responses that break the rule.
        """


class Rule(Verifier):
    """Base class of a rule on the text alone."""

    @abstractmethod
    def keeps(self, response: str) -> bool:
        """Return True if a response that is not empty keeps the rule."""

    def breaking(self, response: str) -> list[Span] | None:
        """Return where a response that is not empty breaks the rule: `[]` if it is kept, None if it is broken, but
        nowhere in particular.
        """
        if self.keeps(response):
            return []
        return self.faults(response) or None if isinstance(self, FindsFaults) else None

    def supporting(self, response: str) -> list[Span] | None:
        """Return the characters of a response that is not empty that support the rule, even if they are not enough;
        None if no particular characters could.
        """
        return None

    def title(self) -> str:
        """Return the rule in one line, for tables: its name and the settings that were given."""
        values = (getattr(self, key) for key in type(self).model_fields if key in self.model_fields_set)
        return " ".join([name_of(self)[1], *map(_short, values)])

    def check(self, response: str) -> bool:
        return bool(response.strip()) and self.keeps(response)

    def violations(self, response: str) -> list[Span] | None:
        return self.breaking(response) if response.strip() else None

    def marks_breaks(self) -> bool:
        return isinstance(self, FindsFaults)

    def evidence(self, response: str) -> list[Span] | None:
        return self.supporting(response) if response.strip() else None


class Forbids(Rule):
    """Rule that something must not be in a response. It is kept if nothing of this kind occurs, unless a subclass
    requires more.
    """

    @abstractmethod
    def faults(self, response: str) -> list[Span]:
        """Return the places of what must not be in a response."""

    def keeps(self, response: str) -> bool:
        return not self.faults(response)

    def scope(self) -> Scope:
        return "negative"


class Requires(Rule):
    """Rule that something must be in a response. It is kept if anything of this kind occurs, unless a subclass requires
    more.
    """

    @abstractmethod
    def supporting(self, response: str) -> list[Span]:
        """Return the places of what must be in a response."""

    def keeps(self, response: str) -> bool:
        return bool(self.supporting(response))

    def scope(self) -> Scope:
        return "positive"


def broken_at(start: int, end: int, why: str) -> Span:
    """Return a span of characters that break a rule."""
    return Span(start=start, end=end, label=-1.0, reasons=[why])


def kept_at(start: int, end: int, why: str) -> Span:
    """Return a span of characters that support a rule."""
    return Span(start=start, end=end, label=1.0, reasons=[why])


def broken_in(parts: Iterable[View | CharRange], why: str) -> list[Span]:
    """Return `broken_at` of every part that has characters, from left to right, each once."""
    return [broken_at(*place, why) for place in _ranges(parts)]


def kept_in(parts: Iterable[View | CharRange], why: str) -> list[Span]:
    """Return `kept_at` of every part that has characters, from left to right, each once."""
    return [kept_at(*place, why) for place in _ranges(parts)]


def _ranges(parts: Iterable[View | CharRange]) -> list[CharRange]:
    filled = [part for part in parts if not isinstance(part, View) or part.text]
    return sorted({part.where() if isinstance(part, View) else part for part in filled})


def in_order(spans: Iterable[Span]) -> list[Span]:
    """Return the spans from left to right, each once."""
    once = {(span.start, span.end, tuple(span.reasons)): span for span in spans}
    return [once[key] for key in sorted(once)]


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:36] + " ..."


def variants(response: str) -> list[str]:
    """Return IFEval's eight variants of a response (Zhou et al. 2023, section 2.2): the unchanged text; the text
    without its first line, its last line, or both (an introduction, a closing remark); and each of these without
    asterisks (markdown). The response itself comes first.
    """
    lines = response.split("\n")
    cut = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return cut + [text.replace("*", "") for text in cut]


def loose(rule: Verifier, response: str) -> bool:
    """Return True if any variant of the response keeps the rule.

    (`rule.check` is the strict verdict.) An empty variant never keeps it. Raises `Undecided` if no variant keeps the
    rule and one of them is undecided.
    """
    missing: Undecided | None = None
    for text in variants(response) if rule.reads_variants() else [response]:
        try:
            if text.strip() and rule.check(text):
                return True
        except Undecided as undecided:
            missing = missing or undecided
    if missing is not None:
        raise missing
    return False


def relevant(rule: Verifier, response: str) -> list[Span]:
    """Return the characters on which the verdict depends, label +1. These are the characters that an annotator marks by
    the guidelines of "Rubrics to Tokens", appendix C.3, here found without an annotator.

    For a positive rule (something must be there), they are the places where it is, if the rule is kept, else none. For a
    negative rule (something must not be there), they are the places where it is, if the rule is broken, else none. For
    a global rule, and a rule that is broken nowhere in particular, they are the whole response. Raises `Undecided` if
    the verdict is undecided.
    """
    whole = [kept_at(0, len(response), "the whole response")] if response else []
    scope = rule.scope()
    kept = rule.check(response)
    if scope == "global":
        return whole
    if kept != (scope == "positive"):
        return []
    spans = rule.evidence(response) if kept else rule.violations(response)
    return whole if spans is None else [span.model_copy(update={"label": 1.0}) for span in spans]
