"""Rewriters, which improve responses step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fgrl.kinds.asker import Asker
from fgrl.registry import kind, name_of
from fgrl.types import Feeling, Marked, Sample, Span


@dataclass(frozen=True)
class ChainCase:
    """A response to improve in steps, each of which addresses one disliked passage."""

    sample: Sample
    place: int
    """Index of the response among the sample's responses."""
    original: Marked
    """The response with its highlights. The disliked ones are numbered from left to right."""
    spans: Mapping[tuple[Feeling, int], Span]
    """Annotator's span of each passage, by `Highlight.key`."""
    explanations: Mapping[tuple[Feeling, int], str]
    """Reason for the mark of each passage, in sentences."""
    check: Callable[[Marked, Marked, int], object]
    """Function `check(before, after, number)`. It raises ValueError, with a reason that a model can act on, unless
    `after` is `before` with one edit that addresses dislike `number`.
    """

    @property
    def steps(self) -> int:
        """Number of disliked passages to address."""
        return sum(highlight.feeling == "dislike" for highlight in self.original.highlights)


@dataclass(frozen=True)
class ChainAttempt:
    """One attempt at a chain: exactly one of `steps` and `problem` is set."""

    steps: Sequence[Marked] = ()
    """The response after each step, all of which passed the check."""
    problem: str | None = None
    """Reason why the attempt is no chain, in a few words that are equal for all attempts of this kind."""
    detail: str = ""
    """The problem in full."""
    answer: str | None = None
    """Text of an answer that is no chain; None if there is none."""
    answered: bool = True
    """False if nobody answered, so no further attempt is made."""


@kind("rewriter")
class Rewriter(Asker, ABC):
    """Rewriter that improves responses step by step, guided by their highlights (the annotator `improvement_chain`)."""

    varies: ClassVar[bool] = True
    """True if another attempt can give another result. False for rules, which are not tried again."""

    by: str | None = None
    """Author name of rewritten responses; null uses the rewriter's own name."""

    @abstractmethod
    def attempt(self, cases: Sequence[ChainCase], number: int) -> list[ChainAttempt]:
        """Return one attempt at each case, in order. number: number of the attempt, from 0; each draws other
        answers.
        """

    def about(self) -> dict[str, Any]:
        """Return the record of how a chain was written."""
        return {"rewriter": self.by or name_of(self)[1]}
