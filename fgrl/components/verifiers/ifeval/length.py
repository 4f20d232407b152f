"""IFEval's rules on the numbers of words, sentences and paragraphs."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field, model_validator

from fgrl.feedback.rules.counted import Length, related
from fgrl.feedback.rules.rule import Relation, Rule, broken_at, broken_in, kept_at, kept_in
from fgrl.feedback.rules.sentences import prose
from fgrl.feedback.rules.text import (
    WORD,
    CharRange,
    View,
    full_and_hollow,
    lowered,
    pieces_between,
    ranges,
    trimmed,
    whole,
)
from fgrl.registry import register
from fgrl.types import Span

DIVIDER = re.compile(r"\s?\*\*\*\s?")
NEXT_PARAGRAPH = re.compile("\n\n")


@register("length_constraints:number_words")
class NumberWords(Length):
    r"""The number of words in the response is at least, or less than, a bound.

    A rule of IFEval (Zhou et al. 2023) under its id, with its parameters and its count: a word is a run of letters,
    digits and underscores (`\w+`), so "don't" is two. Violations of "less than" are all words from the `num_words`-th
    on; a response that is too short violates "at least" without a particular place.
    """

    what: ClassVar[str] = "word"
    relation: Relation
    """Meaning of the bound. `at least`: num_words or more. `less than`: num_words - 1 or fewer."""
    num_words: int = Field(ge=1)
    """Bound on the number of words."""

    def places(self, response: str) -> list[CharRange]:
        return ranges(WORD, response)

    def bounds(self) -> tuple[int, int | None]:
        return related(self.relation, self.num_words)


@register("length_constraints:number_sentences")
class NumberSentences(Length):
    """The number of sentences in the response is at least, or less than, a bound.

    IFEval counts with a trained tokenizer (nltk's punkt), which has to be downloaded. Here sentences are found by
    rules. In both cases the number of a list item ("1.") counts as a sentence. docs/how-to/verifiers.md describes
    possible differences between the counts.
    """

    version = 2

    what: ClassVar[str] = "sentence"
    num_sentences: int = Field(ge=0)
    """Bound on the number of sentences."""
    relation: Relation
    """Meaning of the bound. `at least`: num_sentences or more. `less than`: num_sentences - 1 or fewer."""

    def places(self, response: str) -> list[CharRange]:
        return prose(response)

    def bounds(self) -> tuple[int, int | None]:
        return related(self.relation, self.num_sentences)


@register("length_constraints:number_paragraphs")
class NumberParagraphs(Rule):
    """The response has exactly the given number of paragraphs, separated by the markdown divider ***.

    One divider may precede the first paragraph and follow the last. Violations: the surplus paragraphs, or the divider
    after an empty paragraph.
    """

    num_paragraphs: int = Field(ge=0)
    """Required number of paragraphs."""

    def keeps(self, response: str) -> bool:
        full, hollow = full_and_hollow(response, pieces_between(DIVIDER, response))
        return len(full) == self.num_paragraphs and not hollow

    def faults(self, response: str) -> list[Span]:
        full, hollow = full_and_hollow(response, pieces_between(DIVIDER, response))
        if hollow:
            ends = {end for _, end in hollow}
            after = [divider for divider in ranges(DIVIDER, response) if divider[0] in ends]
            return broken_in([trimmed(response, divider) for divider in after], "empty paragraph")
        return _beyond(self.num_paragraphs, full, response)

    def supporting(self, response: str) -> list[Span]:
        return kept_in(_dividers(response), "divider")


@register("length_constraints:nth_paragraph_first_word")
class NthParagraphFirstWord(Rule):
    """The response has exactly the given number of paragraphs, separated by an empty line, and one of them begins with
    a given word.

    The word is compared in lower case, up to its first . , ? ! or quotation mark.
    """

    num_paragraphs: int = Field(ge=1)
    """Required number of paragraphs."""
    nth_paragraph: int = Field(ge=1)
    """Number of the paragraph that begins with the word, from 1."""
    first_word: str = Field(min_length=1)
    """Word with which the paragraph begins."""

    @model_validator(mode="after")
    def _within(self) -> NthParagraphFirstWord:
        if self.nth_paragraph > self.num_paragraphs:
            raise ValueError(f"nth_paragraph {self.nth_paragraph} is beyond num_paragraphs {self.num_paragraphs}")
        return self

    def keeps(self, response: str) -> bool:
        pieces, full = self._paragraphs(response)
        word = self._word(response, pieces, full)
        return len(full) == self.num_paragraphs and word is not None and word.text == self.first_word.lower()

    def faults(self, response: str) -> list[Span]:
        pieces, full = self._paragraphs(response)
        if len(full) > self.num_paragraphs:
            return _beyond(self.num_paragraphs, full, response)
        word = self._word(response, pieces, full)
        if len(full) < self.num_paragraphs or word is None:
            return []
        start = word.at[0] if word.at else trimmed(response, pieces[self.nth_paragraph - 1])[0]
        return [broken_at(start, word.at[-1] + 1 if word.at else start + 1, f"not {self.first_word}")]

    def supporting(self, response: str) -> list[Span]:
        word = self._word(response, *self._paragraphs(response))
        if word is None or word.text != self.first_word.lower():
            return []
        return [kept_at(*word.where(), f"first word of paragraph {self.nth_paragraph}")]

    def _paragraphs(self, response: str) -> tuple[list[CharRange], list[CharRange]]:
        """Return all pieces, and the pieces that are not blank."""
        pieces = pieces_between(NEXT_PARAGRAPH, response)
        return pieces, full_and_hollow(response, pieces)[0]

    def _word(self, response: str, pieces: list[CharRange], full: list[CharRange]) -> View | None:
        """Return the first word of the n-th piece. As in IFEval, blank pieces are counted."""
        if self.nth_paragraph > len(full):
            return None
        words = whole(response).part(*pieces[self.nth_paragraph - 1]).words()
        if not words:
            return None
        word = words[0]
        for quote in "'\"":
            word = word.part(len(word.text) - len(word.text.lstrip(quote)), len(word.text))
        end = next((index for index, character in enumerate(word.text) if character in ".,?!'\""), len(word.text))
        return lowered(word.part(0, end))


def _beyond(most: int, paragraphs: list[CharRange], text: str) -> list[Span]:
    return broken_in([trimmed(text, place) for place in paragraphs[most:]], f"paragraph beyond {most}")


def _dividers(text: str) -> list[CharRange]:
    """Return the three asterisks, without the white space that belongs to the divider."""
    return [trimmed(text, divider) for divider in ranges(DIVIDER, text)]
