"""Verifiers: rules that a program can check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from fgrl.errors import Undecided
from fgrl.registry import Component, kind, name_of
from fgrl.types import Criterion, Span

Scope = Literal["global", "positive", "negative"]
"""Which characters a rule is about: all of them, those that keep it, or those that break it."""


@kind("verifier")
class Verifier(Component, ABC):
    """A rule that a program can check."""

    @abstractmethod
    def check(self, response: str) -> bool:
        """Does the response keep the rule? Raises `Undecided` when that cannot be found out."""

    def verdict(self, response: str) -> bool | None:
        """`check`, with None for what could not be decided: neither kept nor broken, but missing."""
        try:
            return self.check(response)
        except Undecided:
            return None

    def scope(self) -> Scope:
        """Which characters of a response the rule is about."""
        return "global"

    def title(self) -> str:
        """The rule in one line, for tables."""
        return name_of(self)[1]

    def verdicts(self, response: str) -> dict[str, bool | None]:
        """`verdict` by title; of several rules at once, of each of them."""
        return {self.title(): self.verdict(response)}

    def may_be_undecided(self) -> bool:
        """Can `check` raise `Undecided`?"""
        return False

    def reads_variants(self) -> bool:
        """May a variant of the response (without its first line, without asterisks) be checked in its place? False for
        programs, which are other programs then."""
        return True

    def violations(self, response: str) -> list[Span] | None:
        """Characters that break the rule (label -1), or None when the rule cannot say where."""
        return None

    def marks_breaks(self) -> bool:
        """False if `violations` never returns characters: a broken rule is broken nowhere in particular."""
        return True

    def evidence(self, response: str) -> list[Span] | None:
        """Characters that speak for the rule (label +1), whatever the verdict, or None when the rule cannot say where."""
        return None


@dataclass(frozen=True)
class Checked:
    """A criterion and its verdict in a response."""

    row: int
    """Which response of the rollout."""
    criterion: Criterion
    rule: Verifier | None
    """The verifier that decided; None for a judge."""
    kept: bool | None
    """The verdict; None is missing."""
