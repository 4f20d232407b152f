"""A text with numbered highlights: the input of a rewriter of a chain, and the result of each of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Feeling = Literal["like", "dislike"]


@dataclass(frozen=True, order=True)
class Highlight:
    """A liked or disliked passage. Each feeling is numbered separately, from 1."""

    feeling: Feeling
    number: int
    start: int
    """First character, in code points of the text."""
    end: int
    """Position after the last character; equal to `start` if nothing of the passage is left."""

    @property
    def key(self) -> tuple[Feeling, int]:
        """Identifier of the highlight in every step of a chain."""
        return self.feeling, self.number

    @property
    def place(self) -> tuple[int, int]:
        """Characters of the highlight, `start:end`."""
        return self.start, self.end

    def at(self, start: int, end: int) -> Highlight:
        """Return the same highlight at another place."""
        return Highlight(self.feeling, self.number, start, end)

    def __str__(self) -> str:
        return f"{self.feeling} {self.number}"


@dataclass(frozen=True)
class Marked:
    """A text and its highlights, which may overlap in any way."""

    text: str
    highlights: tuple[Highlight, ...]
    """Highlights in order, each `key` once."""

    @classmethod
    def of(cls, text: str, highlights: Iterable[Highlight]) -> Marked:
        """Return a text with the highlights in order."""
        return cls(text, tuple(sorted(highlights)))

    def keys(self) -> set[tuple[Feeling, int]]:
        """Return the identifier of each highlight."""
        return {highlight.key for highlight in self.highlights}

    def disliked(self, number: int) -> Highlight:
        """Return the disliked passage with this number. Raises KeyError if it is not marked."""
        for highlight in self.highlights:
            if highlight.key == ("dislike", number):
                return highlight
        raise KeyError(f"dislike {number}")
