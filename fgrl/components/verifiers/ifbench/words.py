"""IFBench's rules on the letters, length and position of words."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise
from typing import ClassVar

from pydantic import Field

from fgrl.base import errors, lazy
from fgrl.feedback.rules.counted import Counted
from fgrl.feedback.rules.rule import Forbids, Requires, broken_at, broken_in, kept_in
from fgrl.feedback.rules.sentences import sentences
from fgrl.feedback.rules.text import EDGES, CharRange, View, bare_lower_words, bare_words, lines, lowered, whole
from fgrl.feedback.rules.word_tokens import tokens
from fgrl.registry import register
from fgrl.types import Span

syllapy = lazy.load("syllapy")
SYLLAPY = errors.Requires("syllapy", "words:odd_even_syllables counts with syllapy", extra="rules")

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiou"
CONSONANTS = frozenset(ALPHABET) - frozenset(VOWELS)
PRIMES = frozenset(n for n in range(2, 98) if all(n % d for d in range(2, n)))


@register("words:alphabet")
class Alphabet(Forbids):
    """Each word begins with the next letter of the alphabet, starting from the letter of the first word; A follows Z."""

    def keeps(self, response: str) -> bool:
        return bool(bare_words(response)) and not self.faults(response)

    def faults(self, response: str) -> list[Span]:
        words = bare_words(response)
        if not words:
            return []
        first = words[0].text[0].lower()
        if first not in ALPHABET:
            return broken_in(words[:1], "begins with no letter")
        start = ALPHABET.index(first)
        spans = []
        for index, word in enumerate(words[1:], start=1):
            letter = ALPHABET[(start + index) % 26]
            if word.text.lower()[0] != letter:
                spans.append(broken_at(*word.where(), f"does not begin with {letter}"))
        return spans


@register("words:vowel")
class Vowel(Forbids):
    """The response is one paragraph with at most three of the vowels a, e, i, o, u.

    Violations: lines after the first, and in the first line the fourth and fifth vowel.
    """

    version = 2

    def faults(self, response: str) -> list[Span]:
        body = lowered(whole(response).stripped())
        end = len(body.text.split("\n", 1)[0])
        first, later_lines = body.part(0, end), body.part(end, len(body.text))
        extra = list(dict.fromkeys(character for character in body.text if character in VOWELS))[3:]
        places = [(at, at + 1) for at, character in zip(first.at, first.text, strict=True) if character in extra]
        return broken_in(places, "a fourth vowel") + broken_in([later_lines], "a second paragraph")


@register("words:consonants")
class Consonants(Forbids):
    """Each word has two consonants in a row."""

    def faults(self, response: str) -> list[Span]:
        words = lowered(whole(response)).words()
        wrong = [word for word in words if not any({*pair} <= CONSONANTS for pair in pairwise(word.text))]
        return broken_in(wrong, "no two consonants in a row")


@register("words:palindrome")
class Palindromes(Counted):
    """The response has at least ten words of five letters or more that read the same backwards."""

    what: ClassVar[str] = "palindrome"

    def places(self, response: str) -> list[CharRange]:
        words = bare_lower_words(response)
        return [word.where() for word in words if len(word.text) >= 5 and word.text == word.text[::-1]]

    def bounds(self) -> tuple[int, int | None]:
        return 10, None


@register("words:prime_lengths")
class PrimeLengths(Forbids):
    """The length of each word, without punctuation, is a prime number."""

    def faults(self, response: str) -> list[Span]:
        return [
            broken_at(*word.where(), f"{len(word.text)} characters")
            for word in bare_words(response)
            if len(word.text) not in PRIMES
        ]


@register("words:repeats")
class Repeats(Forbids):
    """No word occurs more than small_n times, in any case. Violations: the surplus occurrences."""

    small_n: int = Field(ge=0)
    """Maximum number of occurrences of a word."""

    def faults(self, response: str) -> list[Span]:
        seen: Counter[str] = Counter()
        spans = []
        for word in bare_lower_words(response):
            seen[word.text] += 1
            if seen[word.text] > self.small_n:
                spans.append(broken_at(*word.where(), f"{word.text} beyond {self.small_n}"))
        return spans


@register("words:odd_even_syllables")
class OddEvenSyllables(Forbids):
    """Words with an odd and an even number of syllables alternate, as syllapy counts them (`pip install
    'fgrl[rules]'`).
    """

    def check_machine(self) -> None:
        SYLLAPY.check()

    def faults(self, response: str) -> list[Span]:
        words = bare_lower_words(response)
        SYLLAPY.check()
        odd = [syllapy.count(word.text) % 2 for word in words]
        pairs = zip(words[1:], pairwise(odd), strict=True)
        return broken_in(
            [word for word, (before, after) in pairs if before == after], "as odd or even as the word before"
        )


@register("words:no_consecutive")
class NoConsecutive(Forbids):
    """No two consecutive words begin with the same letter. Violations: the second of such words."""

    def faults(self, response: str) -> list[Span]:
        words = bare_lower_words(response)
        return [
            broken_at(*word.where(), f"begins with {word.text[0]} like the word before")
            for before, word in pairwise(words)
            if before.text[0] == word.text[0]
        ]


@register("words:last_first")
class LastFirst(Forbids):
    """The last word of each sentence is the first word of the next, in any case. Violations: first words that differ."""

    def keeps(self, response: str) -> bool:
        return all(match for _, match in self._joints(response))

    def faults(self, response: str) -> list[Span]:
        wrong = [word for word, match in self._joints(response) if word and not match]
        return broken_in(wrong, "not the last word of the sentence before")

    def supporting(self, response: str) -> list[Span]:
        right = [word for word, match in self._joints(response) if word and match]
        return kept_in(right, "repeats the last word")

    def _joints(self, response: str) -> list[tuple[View | None, bool]]:
        """Return, for each sentence except the first, its first word and whether it equals the last word of the
        sentence before.
        """
        result: list[tuple[View | None, bool]] = []
        for before, after in pairwise(sentences(response)):
            last = before.text.rstrip(EDGES).split()
            skip = len(after.text) - len(after.text.lstrip(EDGES))
            first = after.part(skip, len(after.text)).words()
            if not last or not first:
                result.append((first[0] if first else None, False))
            else:
                result.append((first[0], last[-1].lower() == first[0].text.lower()))
        return result


@register("words:paragraph_last_first")
class ParagraphLastFirst(Forbids):
    """Each line ends with the word with which it begins, in any case. Violations: last words that differ."""

    def faults(self, response: str) -> list[Span]:
        wrong = [last for first, last in self._ends(response) if first.text != last.text]
        return broken_in(wrong, "not the line's first word")

    def supporting(self, response: str) -> list[Span]:
        pairs = [pair for pair in self._ends(response) if pair[0].text == pair[1].text]
        return kept_in(chain.from_iterable(pairs), "first and last word")

    def _ends(self, response: str) -> list[tuple[View, View]]:
        by_line = [lowered(line.stripped()).stripped(EDGES).words() for line in lines(response)]
        return [(words[0], words[-1]) for words in by_line if words]


@register("words:keywords_specific_position")
class KeywordsSpecificPosition(Requires):
    """The m-th word of the n-th sentence is the keyword; case matters.

    Words and marks are those of nltk's tokenizer, found without its data: a comma counts as a word. Violations: the
    word at this place.
    """

    version = 2

    keyword: str = Field(pattern=r"\S")
    """Keyword that must be at the given place."""
    n: int = Field(ge=1)
    """Number of the sentence, from 1."""
    m: int = Field(ge=1)
    """Number of the word in the sentence, from 1."""

    def faults(self, response: str) -> list[Span]:
        return broken_in(self._asked(response), f"not {self.keyword.strip()}")

    def supporting(self, response: str) -> list[Span]:
        return kept_in([word for word in self._asked(response) if word.text == self.keyword.strip()], "keyword")

    def _asked(self, response: str) -> list[View]:
        """Return a list with the m-th word of the n-th sentence; empty if there is no such word."""
        return [
            sentence.part(*word.where())
            for sentence in sentences(response)[self.n - 1 : self.n]
            for word in tokens(sentence.text)[self.m - 1 : self.m]
        ]


@register("words:words_position")
class WordsPosition(Requires):
    """The second word and the second to last word are the keyword; case matters.

    Words and marks are those of nltk's tokenizer, found without its data: a final period is the last word. Violations:
    the words at these places.
    """

    version = 2

    keyword: str = Field(pattern=r"\S")
    """Keyword that must be at both places."""

    def keeps(self, response: str) -> bool:
        words = self._words(response)
        return bool(words) and all(word.text == self.keyword.strip() for word in words)

    def faults(self, response: str) -> list[Span]:
        wrong = [word for word in self._words(response) if word.text != self.keyword.strip()]
        return broken_in(wrong, f"not {self.keyword.strip()}")

    def supporting(self, response: str) -> list[Span]:
        return kept_in([word for word in self._words(response) if word.text == self.keyword.strip()], "keyword")

    def _words(self, response: str) -> list[View]:
        """Return the two words; an empty list if there are not enough words."""
        words = tokens(response)
        return [words[1], words[-2]] if len(words) > 1 else []
