"""Rewriters: they improve responses step by step."""

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
    """A response that is to be improved in steps, each of which addresses one disliked passage."""

    sample: Sample
    place: int
    """Index of the response among the sample's responses."""
    original: Marked
    """The response with its highlights. The disliked ones are numbered from left to right."""
    spans: Mapping[tuple[Feeling, int], Span]
    """What the annotator recorded about each passage, by `Highlight.key`."""
    explanations: Mapping[tuple[Feeling, int], str]
    """Why each passage was marked, in sentences."""
    check: Callable[[Marked, Marked, int], object]
    """`check(before, after, number)` raises ValueError, with a reason that a model can act on, unless `after` is
    `before` with one edit that addresses dislike `number`."""

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
    """What kept the attempt from being a chain, in a few words that are the same for all attempts of this sort."""
    detail: str = ""
    """The problem in full."""
    answer: str | None = None
    """Text of an answer that is no chain; None: there is none."""
    answered: bool = True
    """False: nobody answered, so a further attempt is not made."""


@kind("rewriter")
class Rewriter(Asker, ABC):
    """Improves responses step by step, as their highlights ask (the annotator `improvement_chain`)."""

    varies: ClassVar[bool] = True
    """True if another attempt can give another result. False for rules, which are not tried again."""

    by: str | None = None
    """The name that rewritten responses get as their author; null is the rewriter's own."""

    @abstractmethod
    def attempt(self, cases: Sequence[ChainCase], number: int) -> list[ChainAttempt]:
        """Return one attempt at each case, in order. number: from 0; another one draws other answers."""

    def about(self) -> dict[str, Any]:
        """Return what a chain records about how it was written."""
        return {"rewriter": self.by or name_of(self)[1]}
