"""IFBench's rules on each word: its letters, its length, its place."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import ClassVar

from pydantic import Field

from fgrl import lazy
from fgrl.errors import Requires
from fgrl.kinds import Scope
from fgrl.registry import register
from fgrl.rules.counted import Counted
from fgrl.rules.rule import Rule, broken_at, in_order, kept_at
from fgrl.rules.sentences import sentences
from fgrl.rules.text import EDGES, Place, View, bare_words, lines, lowered, whole, without
from fgrl.rules.word_tokens import tokens
from fgrl.types import Span

syllapy = lazy.load("syllapy")

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiou"
CONSONANTS = frozenset(ALPHABET) - frozenset(VOWELS)
PRIMES = frozenset(n for n in range(2, 98) if all(n % d for d in range(2, n)))


class EveryWord(Rule):
    """Something that each word must be; the words that are not break the rule."""

    def keeps(self, response: str) -> bool:
        return not self.breaking(response)

    def scope(self) -> Scope:
        return "negative"


@register("words:alphabet")
class Alphabet(EveryWord):
    """Each word begins with the next letter of the alphabet, from that of the first word; A follows Z."""

    def breaking(self, response: str) -> list[Span] | None:
        words = bare_words(response)
        first = words[0].text[0].lower() if words else ""
        if first not in ALPHABET or not first:
            return [broken_at(*words[0].where(), "begins with no letter")] if words else None
        start = ALPHABET.index(first)
        found = []
        for index, word in enumerate(words[1:], start=1):
            letter = ALPHABET[(start + index) % 26]
            if word.text.lower()[0] != letter:
                found.append(broken_at(*word.where(), f"does not begin with {letter}"))
        return found

    def keeps(self, response: str) -> bool:
        return self.breaking(response) == []


@register("words:vowel")
class Vowel(EveryWord):
    """The response is one paragraph with at most three of the vowels a, e, i, o, u.

    What breaks it: the vowels that come fourth and fifth, and lines after the first.
    """

    def breaking(self, response: str) -> list[Span]:
        body = lowered(whole(response).stripped())
        first = body.text.find("\n")
        found = []
        if first >= 0:
            found.append(broken_at(*body.part(first, len(body.text)).where(), "a second paragraph"))
        kinds = list(dict.fromkeys(character for character in body.text if character in VOWELS))[3:]
        places = [body.at[at] for at, character in enumerate(body.text) if character in kinds]
        return in_order(found + [broken_at(at, at + 1, "a fourth vowel") for at in places]) if found or kinds else []


@register("words:consonants")
class Consonants(EveryWord):
    """Each word has two consonants in a row."""

    def breaking(self, response: str) -> list[Span]:
        return [
            broken_at(*word.where(), "no two consonants in a row")
            for word in lowered(whole(response)).words()
            if not any(one in CONSONANTS and two in CONSONANTS for one, two in pairwise(word.text))
        ]


@register("words:palindrome")
class Palindromes(Counted):
    """The response has at least ten words of five letters or more that read the same backwards."""

    what: ClassVar[str] = "palindrome"

    def places(self, response: str) -> list[Place]:
        words = lowered(without(whole(response))).words()
        return [word.where() for word in words if len(word.text) >= 5 and word.text == word.text[::-1]]

    def bounds(self) -> tuple[int, int | None]:
        return 10, None


@register("words:prime_lengths")
class PrimeLengths(EveryWord):
    """The length of each word, without punctuation, is a prime number."""

    def breaking(self, response: str) -> list[Span]:
        return [
            broken_at(*word.where(), f"{len(word.text)} characters")
            for word in bare_words(response)
            if len(word.text) not in PRIMES
        ]


@register("words:repeats")
class Repeats(EveryWord):
    """No word occurs more than small_n times, in any case. What breaks the rule: the occurrences beyond."""

    small_n: int = Field(ge=0)
    """How often a word may occur."""

    def breaking(self, response: str) -> list[Span]:
        seen: Counter[str] = Counter()
        found = []
        for word in without(lowered(whole(response))).words():
            seen[word.text] += 1
            if seen[word.text] > self.small_n:
                found.append(broken_at(*word.where(), f"{word.text} beyond {self.small_n}"))
        return found


@register("words:odd_even_syllables")
class OddEvenSyllables(EveryWord):
    """Words with an odd and an even number of syllables alternate, as syllapy counts them (`pip install 'fgrl[rules]'`)."""

    def breaking(self, response: str) -> list[Span]:
        words = lowered(without(whole(response))).words()
        odd = [_syllables(word.text) % 2 for word in words]
        return [
            broken_at(*word.where(), "as odd or even as the word before")
            for word, before, here in zip(words[1:], odd, odd[1:], strict=False)
            if before == here
        ]


@register("words:no_consecutive")
class NoConsecutive(EveryWord):
    """No two words in a row begin with the same letter. What breaks the rule: the second of them."""

    def breaking(self, response: str) -> list[Span]:
        words = without(lowered(whole(response))).words()
        return [
            broken_at(*word.where(), f"begins with {word.text[0]} like the word before")
            for before, word in pairwise(words)
            if before.text[0] == word.text[0]
        ]


@register("words:last_first")
class LastFirst(Rule):
    """The last word of each sentence is the first of the next, in any case. What breaks the rule: a first word that is not."""

    def keeps(self, response: str) -> bool:
        return all(match for _, match in self._joints(response))

    def breaking(self, response: str) -> list[Span] | None:
        found = [
            broken_at(*word.where(), "not the last word of the sentence before")
            for word, match in self._joints(response)
            if word is not None and not match
        ]
        return found or ([] if self.keeps(response) else None)

    def supporting(self, response: str) -> list[Span]:
        return [
            kept_at(*word.where(), "repeats the last word") for word, match in self._joints(response) if word and match
        ]

    def scope(self) -> Scope:
        return "negative"

    def _joints(self, response: str) -> list[tuple[View | None, bool]]:
        """Of each sentence but the first: its first word, and whether it is the last of the sentence before."""
        found = sentences(response)
        result: list[tuple[View | None, bool]] = []
        for before, after in pairwise(found):
            last = before.text.rstrip(EDGES).split()
            skip = len(after.text) - len(after.text.lstrip(EDGES))
            first = after.part(skip, len(after.text)).words()
            if not last or not first:
                result.append((first[0] if first else None, False))
            else:
                result.append((first[0], last[-1].lower() == first[0].text.lower()))
        return result


@register("words:paragraph_last_first")
class ParagraphLastFirst(Rule):
    """Each line ends with the word it begins with, in any case. What breaks the rule: a last word that is another."""

    def keeps(self, response: str) -> bool:
        return not self.breaking(response)

    def breaking(self, response: str) -> list[Span]:
        return [
            broken_at(*last.where(), "not the line's first word")
            for first, last in self._ends(response)
            if first.text != last.text
        ]

    def supporting(self, response: str) -> list[Span]:
        pairs = [pair for pair in self._ends(response) if pair[0].text == pair[1].text]
        return in_order([kept_at(*word.where(), "first and last word") for pair in pairs for word in pair])

    def scope(self) -> Scope:
        return "negative"

    def _ends(self, response: str) -> list[tuple[View, View]]:
        found = [lowered(line.stripped()).stripped(EDGES).words() for line in lines(response)]
        return [(words[0], words[-1]) for words in found if words]


@register("words:keywords_specific_position")
class KeywordsSpecificPosition(Rule):
    """The m-th word of the n-th sentence is the keyword; case counts.

    Words and marks are those of nltk's tokenizer, found without its data: a comma counts as a word. What breaks the rule:
    the word that stands there.
    """

    keyword: str = Field(pattern=r"\S")
    """The keyword."""
    n: int = Field(ge=1)
    """Which sentence."""
    m: int = Field(ge=1)
    """Which word of it."""

    def keeps(self, response: str) -> bool:
        return bool(self.supporting(response))

    def breaking(self, response: str) -> list[Span] | None:
        word = self._word(response)
        if word is None:
            return None
        return [] if word.text == self.keyword.strip() else [broken_at(*word.where(), f"not {self.keyword.strip()}")]

    def supporting(self, response: str) -> list[Span]:
        word = self._word(response)
        return [kept_at(*word.where(), "keyword")] if word and word.text == self.keyword.strip() else []

    def scope(self) -> Scope:
        return "positive"

    def _word(self, response: str) -> View | None:
        found = sentences(response)
        if len(found) < self.n:
            return None
        sentence = found[self.n - 1]
        words = tokens(sentence.text)
        if len(words) < self.m:
            return None
        place = words[self.m - 1].where()
        return sentence.part(*place)


@register("words:words_position")
class WordsPosition(Rule):
    """The second word and the second to last word are the keyword; case counts.

    Words and marks are those of nltk's tokenizer, found without its data: a final period is the last word. What breaks the
    rule: the words that stand there.
    """

    keyword: str = Field(pattern=r"\S")
    """The keyword."""

    def keeps(self, response: str) -> bool:
        return self.breaking(response) == []

    def breaking(self, response: str) -> list[Span] | None:
        words = self._words(response)
        if words is None:
            return None
        wrong = [word for word in words if word.text != self.keyword.strip()]
        return in_order([broken_at(*word.where(), f"not {self.keyword.strip()}") for word in wrong])

    def supporting(self, response: str) -> list[Span]:
        words = self._words(response) or []
        return in_order([kept_at(*word.where(), "keyword") for word in words if word.text == self.keyword.strip()])

    def scope(self) -> Scope:
        return "positive"

    def _words(self, response: str) -> list[View] | None:
        words = tokens(response)
        return None if len(words) < 2 else [words[1], words[-2]]


def _syllables(word: str) -> int:
    with Requires("syllapy", "words:odd_even_syllables counts with syllapy", extra="rules"):
        return syllapy.count(word)
