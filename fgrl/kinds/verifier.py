"""Verifiers, which are rules that a program can check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from fgrl.base.errors import Undecided
from fgrl.registry import Component, kind, name_of
from fgrl.types import Criterion, Span

Scope = Literal["global", "positive", "negative"]
"""Characters that a rule is about: all characters, those that keep it, or those that break it."""


@kind("verifier")
class Verifier(Component, ABC):
    """Verifier: a rule that a program can check."""

    def setup(self, run: Any) -> None:
        self.check_machine()
        super().setup(run)

    @abstractmethod
    def check(self, response: str) -> bool:
        """Return True if the response keeps the rule. Raises `Undecided` if that cannot be determined."""

    def verdict(self, response: str) -> bool | None:
        """Return `check`, or None if it is undecided: neither kept nor broken, but missing."""
        try:
            return self.check(response)
        except Undecided:
            return None

    def scope(self) -> Scope:
        """Return the characters of a response that the rule is about."""
        return "global"

    def title(self) -> str:
        """Return the rule in one line, for tables."""
        return name_of(self)[1]

    def verdicts(self, response: str) -> dict[str, bool | None]:
        """Return the `verdict` by title, for each of several rules."""
        return {self.title(): self.verdict(response)}

    def may_be_undecided(self) -> bool:
        """Return True if `check` can raise `Undecided`."""
        return False

    def reads_variants(self) -> bool:
        """Return True if a variant of the response (without its first line, without asterisks) may be checked in its
        place. False for programs, since a variant is another program.
        """
        return True

    def violations(self, response: str) -> list[Span] | None:
        """Return the characters that break the rule (label -1); None if the rule cannot tell them."""
        return None

    def marks_breaks(self) -> bool:
        """Return False if `violations` never returns characters: a broken rule is then broken nowhere in particular."""
        return True

    def evidence(self, response: str) -> list[Span] | None:
        """Return the characters that support the rule (label +1), whatever the verdict; None if the rule cannot tell
        them.
        """
        return None


@dataclass(frozen=True)
class Checked:
    """A criterion and its verdict in a response."""

    row: int
    """Index of the response in the rollout."""
    criterion: Criterion
    rule: Verifier | None
    """Verifier that decided; None for a judge."""
    kept: bool | None
    """Verdict; None if it is missing."""
