"""Several rules at once."""

from __future__ import annotations

from itertools import chain

from pydantic import Field

from fgrl.base.errors import Undecided
from fgrl.feedback.rules.rule import Rule, in_order
from fgrl.kinds import Verifier
from fgrl.registry import register
from fgrl.types import Span


@register("all_of")
class AllOf(Rule):
    """The response satisfies all of the rules.

    Its violations are the union of the violations of all rules that can locate them. Its evidence is the union of the
    evidence of all rules.
    """

    rules: list[Verifier] = Field(min_length=1)
    """Rules that must all be satisfied."""

    def may_be_undecided(self) -> bool:
        return any(rule.may_be_undecided() for rule in self.rules)

    def keeps(self, response: str) -> bool:
        """Return False if a rule is violated. Otherwise an undecided rule leaves the whole undecided."""
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
        if self.verdict(response):
            return []
        return in_order(span for rule in self.rules for span in rule.violations(response) or []) or None

    def marks_breaks(self) -> bool:
        return any(rule.marks_breaks() for rule in self.rules)

    def supporting(self, response: str) -> list[Span] | None:
        known = [spans for rule in self.rules if (spans := rule.evidence(response)) is not None]
        return in_order(chain.from_iterable(known)) if known else None

    def title(self) -> str:
        return " and ".join(rule.title() for rule in self.rules)

    def verdicts(self, response: str) -> dict[str, bool | None]:
        return {title: kept for rule in self.rules for title, kept in rule.verdicts(response).items()}
