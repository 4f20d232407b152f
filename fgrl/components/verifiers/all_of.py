"""Several rules at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import Field

from fgrl.errors import Undecided
from fgrl.kinds import Verifier
from fgrl.registry import register
from fgrl.rules.rule import Rule
from fgrl.types import Span


@register("all_of")
class AllOf(Rule):
    """The response keeps every one of the rules.

    What breaks it is the union of what breaks each rule that can tell where; None only when none can. What speaks for it
    is the union of what speaks for each.
    """

    rules: list[Verifier] = Field(min_length=1)
    """The rules."""

    def setup(self, run: Any) -> None:
        for rule in self.rules:
            rule.setup(run)

    def may_be_undecided(self) -> bool:
        return any(rule.may_be_undecided() for rule in self.rules)

    def undecided(self) -> dict[str, int]:
        return dict(sum((Counter(rule.undecided()) for rule in self.rules), Counter()))

    def keeps(self, response: str) -> bool:
        """One broken rule decides; without one, an undecided rule leaves the whole undecided."""
        missing: Undecided | None = None
        for rule in self.rules:
            try:
                if not rule.check(response):
                    return False
            except Undecided as undecided:
                missing = missing or undecided
        if missing is not None:
            raise missing
        return True

    def breaking(self, response: str) -> list[Span] | None:
        return _union([rule.violations(response) for rule in self.rules])

    def supporting(self, response: str) -> list[Span] | None:
        return _union([rule.evidence(response) for rule in self.rules])

    def title(self) -> str:
        return " and ".join(rule.title() for rule in self.rules)

    def verdicts(self, response: str) -> dict[str, bool | None]:
        return {title: kept for rule in self.rules for title, kept in rule.verdicts(response).items()}


def _union(parts: list[list[Span] | None]) -> list[Span] | None:
    """All spans, from left to right; None when no part has any."""
    known = [spans for spans in parts if spans is not None]
    if not known:
        return None
    return sorted((span for spans in known for span in spans), key=lambda span: (span.start, span.end))
