"""IFEval's rules on words and letters that must or must not occur."""

from __future__ import annotations

import re
from itertools import chain
from typing import Annotated, ClassVar

from pydantic import Field

from fgrl.feedback.rules.counted import Counted, related
from fgrl.feedback.rules.rule import Forbids, Relation, Requires, broken_in, in_order, kept_in
from fgrl.feedback.rules.text import CharRange, ranges
from fgrl.registry import register
from fgrl.types import Span

Word = Annotated[str, Field(min_length=1)]


def anycase(word: str) -> re.Pattern[str]:
    """Return a pattern for the word in any case, also inside longer words."""
    return re.compile(re.escape(word), re.IGNORECASE)


def whole_word(word: str) -> re.Pattern[str]:
    """Return a pattern for the word in any case, without an adjacent letter, digit or underscore."""
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)


@register("keywords:existence")
class Existence(Requires):
    """Every keyword occurs in the response, in any case, also inside longer words."""

    keywords: list[Word] = Field(min_length=1)
    """Keywords that must occur."""

    def keeps(self, response: str) -> bool:
        return all(anycase(word).search(response) for word in self.keywords)

    def supporting(self, response: str) -> list[Span]:
        marks = [kept_in(ranges(anycase(word), response), f"keyword {word}") for word in self.keywords]
        return in_order(chain.from_iterable(marks))


@register("keywords:frequency")
class Frequency(Counted):
    """The number of occurrences of a keyword, in any case and also inside longer words, is at least, or less than, a
    bound.
    """

    what: ClassVar[str] = "keyword"
    keyword: str = Field(pattern=r"\S")
    """Keyword, without surrounding white space."""
    frequency: int = Field(ge=0)
    """Bound on the number of occurrences."""
    relation: Relation
    """Meaning of the bound. `at least`: frequency or more. `less than`: frequency - 1 or fewer."""

    def places(self, response: str) -> list[CharRange]:
        return ranges(anycase(self.keyword.strip()), response)

    def bounds(self) -> tuple[int, int | None]:
        return related(self.relation, self.frequency)


@register("keywords:forbidden_words")
class ForbiddenWords(Forbids):
    """None of the words occurs in the response, in any case; parts of longer words do not count."""

    forbidden_words: list[Word] = Field(min_length=1)
    """Words that must not occur."""

    def faults(self, response: str) -> list[Span]:
        marks = [
            broken_in(ranges(whole_word(word), response), f"forbidden word {word}") for word in self.forbidden_words
        ]
        return in_order(chain.from_iterable(marks))


@register("keywords:letter_frequency")
class LetterFrequency(Counted):
    """The number of occurrences of a letter, in upper or lower case, is at least, or less than, a bound."""

    what: ClassVar[str] = "letter"
    letter: str = Field(min_length=1, max_length=1)
    """Letter to count (any single character)."""
    let_frequency: int = Field(ge=0)
    """Bound on the number of occurrences."""
    let_relation: Relation
    """Meaning of the bound. `at least`: let_frequency or more. `less than`: let_frequency - 1 or fewer."""

    def places(self, response: str) -> list[CharRange]:
        letter = self.letter.lower()
        return [(at, at + 1) for at, character in enumerate(response) if letter in character.lower()]

    def bounds(self) -> tuple[int, int | None]:
        return related(self.let_relation, self.let_frequency)
