"""IFBench's rules on the numbers of words, names, digits and marks."""

from __future__ import annotations

import re
from itertools import chain
from typing import ClassVar

from pydantic import Field, model_validator

from fgrl.feedback.rules.counted import Counted, Length
from fgrl.feedback.rules.rule import Forbids, Requires, Rule, broken_in, in_order, kept_in
from fgrl.feedback.rules.text import (
    DIGITS,
    EDGES,
    WORD,
    CharRange,
    View,
    lowered,
    occurrences_anycase,
    occurrences_of_any,
    ranges,
    whole,
    without,
)
from fgrl.registry import register
from fgrl.types import Span

CONJUNCTIONS = frozenset(["and", "but", "for", "nor", "or", "so", "yet"])
PRONOUNS = frozenset(
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers "  # noqa: SIM905
    "herself it its itself they them their theirs themselves".split()
)
NAMES = (
    "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo "  # noqa: SIM905
    "Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla "
    "Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan".split()
)
MARKS = ".,!?;:"
INTERROBANGS = ("?!", "!?", "‽")
JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")


@register("count:word_count_range")
class WordCountRange(Length):
    r"""The response has between min_words and max_words words (runs of letters, digits and underscores)."""

    what: ClassVar[str] = "word"
    min_words: int = Field(ge=0)
    """Minimum number of words."""
    max_words: int = Field(ge=0)
    """Maximum number of words."""

    @model_validator(mode="after")
    def _ordered(self) -> WordCountRange:
        if self.max_words < self.min_words:
            raise ValueError(f"max_words {self.max_words} is below min_words {self.min_words}")
        return self

    def places(self, response: str) -> list[CharRange]:
        return ranges(WORD, response)

    def bounds(self) -> tuple[int, int | None]:
        return self.min_words, self.max_words


@register("count:unique_word_count")
class UniqueWordCount(Rule):
    """The response has at least N different words: pieces between white space, in lower case, without punctuation at
    their ends. As in IFBench, a piece that is only punctuation counts, as one word for all of them.
    """

    N: int = Field(ge=0)
    """Minimum number of different words."""

    def keeps(self, response: str) -> bool:
        return len({word.strip(EDGES) for word in response.lower().split()}) >= self.N


@register("count:conjunctions")
class Conjunctions(Requires):
    """The response has at least small_n different coordinating conjunctions (and, but, for, nor, or, so, yet).

    As in IFBench, spellings are distinguished: "and", "And" and "and," are three.
    """

    small_n: int = Field(ge=0)
    """Minimum number of different conjunctions."""

    def keeps(self, response: str) -> bool:
        words = {response[span.start : span.end] for span in self.supporting(response)}
        return len(words) >= self.small_n

    def supporting(self, response: str) -> list[Span]:
        words = whole(response).words()
        return kept_in([word for word in words if word.text.strip(EDGES).lower() in CONJUNCTIONS], "conjunction")


@register("count:person_names")
class PersonNames(Requires):
    """The response has at least N different names of IFBench's fifty (Emma, Liam, Sophia, ...), also inside longer
    words.
    """

    N: int = Field(ge=0)
    """Minimum number of different names."""

    def keeps(self, response: str) -> bool:
        return sum(name in response for name in NAMES) >= self.N

    def supporting(self, response: str) -> list[Span]:
        return kept_in(occurrences_of_any(NAMES, response), "name")


@register("count:numbers")
class Numbers(Counted):
    """The response has exactly N numbers: runs of digits after punctuation is removed, so "3.14" is one."""

    what: ClassVar[str] = "number"
    N: int = Field(ge=0)
    """Required number of numbers."""

    def places(self, response: str) -> list[CharRange]:
        view = without(whole(response))
        return [view.place(*number) for number in ranges(DIGITS, view.text)]

    def bounds(self) -> tuple[int, int | None]:
        return self.N, self.N


@register("count:punctuation")
class Punctuation(Requires):
    """The response has each of . , ! ? ; : and an interrobang (?!, !? or ‽), whose own marks do not count for !
    and ?.
    """

    def keeps(self, response: str) -> bool:
        if not any(mark in response for mark in INTERROBANGS):
            return False
        rest = response.replace("?!", "", 1)
        if rest == response:
            rest = response.replace("!?", "", 1)
        return all(mark in rest for mark in MARKS)

    def supporting(self, response: str) -> list[Span]:
        marks = occurrences_of_any(MARKS + "‽", response)
        pairs = occurrences_of_any(INTERROBANGS[:2], response)
        return in_order(kept_in(marks, "mark") + kept_in(pairs, "interrobang"))


@register("count:words_japanese")
class WordsJapanese(Forbids):
    """Every N-th word has Japanese characters (kana or kanji). Numbers and single punctuation marks are accepted as
    well.
    """

    N: int = Field(ge=1)
    """Distance between the checked words."""

    def faults(self, response: str) -> list[Span]:
        return broken_in(self._asked(response, japanese=False), f"word {self.N} in turn, not Japanese")

    def supporting(self, response: str) -> list[Span]:
        return kept_in(self._asked(response, japanese=True), "Japanese word")

    def _asked(self, response: str, japanese: bool) -> list[View]:
        """Return the N-th words that are Japanese, or those that are not."""
        words = [word.stripped(EDGES) for word in whole(response).words()[self.N - 1 :: self.N]]
        asked = [word for word in words if not word.text.isdigit()]
        return [word for word in asked if bool(JAPANESE.search(word.text)) == japanese]


@register("count:pronouns")
class Pronouns(Counted):
    """The response has at least N pronouns of IFBench's list (personal, possessive and reflexive); "she/her" is two."""

    what: ClassVar[str] = "pronoun"
    N: int = Field(ge=0)
    """Minimum number of pronouns."""

    def places(self, response: str) -> list[CharRange]:
        view = without(lowered(whole(response.replace("/", " "))))
        return [word.where() for word in view.words() if word.text in PRONOUNS]

    def bounds(self) -> tuple[int, int | None]:
        return self.N, None


@register("count:keywords_multiple")
class KeywordsMultiple(Requires):
    """Five keywords occur exactly 1, 2, 3, 5 and 7 times, in any case, also inside longer words.

    Violations: the surplus occurrences.
    """

    keyword1: str = Field(pattern=r"\S")
    """Keyword that occurs once."""
    keyword2: str = Field(pattern=r"\S")
    """Keyword that occurs twice."""
    keyword3: str = Field(pattern=r"\S")
    """Keyword that occurs three times."""
    keyword4: str = Field(pattern=r"\S")
    """Keyword that occurs five times."""
    keyword5: str = Field(pattern=r"\S")
    """Keyword that occurs seven times."""

    def keeps(self, response: str) -> bool:
        return all(len(places) == count for _, count, places in self._occurring(response))

    def faults(self, response: str) -> list[Span]:
        marks = [broken_in(places[n:], f"{word} beyond {n}") for word, n, places in self._occurring(response)]
        return in_order(chain.from_iterable(marks))

    def supporting(self, response: str) -> list[Span]:
        marks = [kept_in(places[:n], word) for word, n, places in self._occurring(response)]
        return in_order(chain.from_iterable(marks))

    def _occurring(self, response: str) -> list[tuple[str, int, list[CharRange]]]:
        """Return each keyword, its required number of occurrences, and its occurrences."""
        words = [self.keyword1, self.keyword2, self.keyword3, self.keyword4, self.keyword5]
        return [
            (word.strip(), count, occurrences_anycase(word.strip(), response))
            for word, count in zip(words, (1, 2, 3, 5, 7), strict=True)
        ]
