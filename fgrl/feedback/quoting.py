"""Common parts of components whose language model quotes passages of a response: the search for quotes, the spans that
they give, and an alarm for quotes that are not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from fgrl.base.errors import Stopped
from fgrl.feedback.asking_annotator import AskingAnnotator
from fgrl.feedback.quotes import USUAL_UNMATCHED, Located, Match, Occurrence, locate_each
from fgrl.registry import Settings, Unkeyed
from fgrl.types import Span


class Quotes:
    """The quotes of an answer about one response, and the places of each in the response."""

    def __init__(self, response: str, occurrence: Occurrence, fuzzy: float | None, *, ignore_case: bool) -> None:
        self.response, self.occurrence, self.fuzzy, self.ignore_case = response, occurrence, fuzzy, ignore_case
        self.located: list[tuple[str, list[Match]]] = []
        """Quotes of the last answer with their matches; a quote that was not found has none."""

    def clear(self) -> None:
        """Forget the last answer, e.g. because another answer is read in its place."""
        self.located = []

    def take(self, quotes: Sequence[str], usable: Callable[[str], bool] = bool) -> None:
        """Record the quotes of an answer, found or not. A quote that is not `usable` counts as not found."""
        matches = locate_each(quotes, self.response, self.occurrence, self.fuzzy, ignore_case=self.ignore_case)
        self.located = [(quote, places if usable(quote) else []) for quote, places in zip(quotes, matches, strict=True)]

    def locate(self, quotes: Sequence[str]) -> None:
        """Record the quotes of an answer as `take` does. Raises ValueError, with a reason that the model can act on, if
        none of the quotes is found.
        """
        self.take(quotes)
        if quotes and not any(matches for _quote, matches in self.located):
            raise ValueError(
                f"none of the passages stands in the response, {quotes[0][:80]!r} for one: copy them letter by letter"
            )

    def spans(self, label: float = 1.0) -> list[Span]:
        """Return the distinct places of all quotes, in order."""
        places = {(match.start, match.end) for _quote, matches in self.located for match in matches}
        return [Span(start=start, end=end, label=label) for start, end in sorted(places)]

    def records(self) -> list[dict[str, Any]]:
        """Return how each quote was found, for `meta`: one entry for each place, and one with `kind` null for a quote
        that was not found.
        """
        entries: list[dict[str, Any]] = []
        for quote, matches in self.located:
            entries += [
                {"quote": quote, "kind": match.kind, "score": match.score, "start": match.start, "end": match.end}
                for match in matches
            ] or [{"quote": quote, "kind": None}]
        return entries


def counted(quotes: Iterable[Quotes]) -> Located:
    """Return statistics of how the quotes of all these responses were found."""
    located = Located()
    located.add(matches for own in quotes for _quote, matches in own.located)
    return located


class QuoteSearch(Settings):
    """Settings of the search for quotes in responses (see `fgrl.feedback.quotes`)."""

    occurrence: Literal["first", "all"] = "first"
    """Mark only the first place of a quote (the first n places of a quote that is given n times), or every place."""
    fuzzy: float | None = Field(0.9, gt=0, le=1)
    """Minimum similarity of a passage to a quote that the response does not contain literally; null accepts no such
    passage.
    """
    ignore_case: bool = False
    """Also find quotes that differ from the response in upper and lower case."""

    def quotes_of(self, response: str) -> Quotes:
        """Find quotes in one response."""
        return Quotes(response, self.occurrence, self.fuzzy, ignore_case=self.ignore_case)


class QuotingAnnotator(QuoteSearch, AskingAnnotator):
    """Annotator that finds the passages that a language model quotes from the response, and reports if too many quotes
    were not found.
    """

    max_unmatched: Annotated[float, Unkeyed] = Field(USUAL_UNMATCHED, ge=0, le=1)
    """Share of quotes that may be missing from the response before the alarm goes off."""
    alarm: Annotated[Literal["warn", "stop"], Unkeyed] = "warn"
    """Action of the alarm: print a warning, or stop the stage. (Answers are cached.)"""

    def check_unmatched(self, quotes: Iterable[Quotes]) -> dict[str, Any]:
        """Return the counts of `Located`. Raises `Stopped`, or warns, if more quotes than `max_unmatched` were not
        found.
        """
        located = counted(quotes)
        message = located.alarm(self.max_unmatched)
        if message is not None and self.alarm == "stop":
            raise Stopped(f"{message}\nstopped by `max_unmatched`; `alarm: warn` continues")
        if message is not None and self._run is not None:
            self._run.say(f"alarm: {message}")
        return located.counts()
