"""A text with numbered highlights: what a rewriter of a chain is shown, and what each of its steps gives back."""

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
    """The position after the last character; equal to `start` for a passage of which nothing is left."""

    @property
    def key(self) -> tuple[Feeling, int]:
        """What identifies it in every step of a chain."""
        return self.feeling, self.number

    @property
    def place(self) -> tuple[int, int]:
        """Its characters, `start:end`."""
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
    """Sorted, each `key` once."""

    @classmethod
    def of(cls, text: str, highlights: Iterable[Highlight]) -> Marked:
        """With the highlights in order."""
        return cls(text, tuple(sorted(highlights)))

    def keys(self) -> set[tuple[Feeling, int]]:
        """Return the identifier of each highlight."""
        return {highlight.key for highlight in self.highlights}

    def disliked(self, number: int) -> Highlight:
        """Return the disliked passage of this number. Raises KeyError when it is not marked."""
        for highlight in self.highlights:
            if highlight.key == ("dislike", number):
                return highlight
        raise KeyError(f"dislike {number}")
