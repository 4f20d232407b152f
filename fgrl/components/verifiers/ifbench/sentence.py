"""IFBench's rules on each sentence."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field

from fgrl.kinds import Scope
from fgrl.registry import register
from fgrl.rules.rule import Rule, broken_at, kept_at
from fgrl.rules.sentences import sentences
from fgrl.rules.text import PUNCTUATION, View, occurrences_anycase, without
from fgrl.types import Span


@register("sentence:alliteration_increment")
class AlliterationIncrement(Rule):
    """Each sentence has more alliterative words (neighbours with the same first letter) than the one before.

    What breaks it: the sentences that have not.
    """

    def keeps(self, response: str) -> bool:
        return all(more for _, more in self._steps(response))

    def breaking(self, response: str) -> list[Span] | None:
        found = [sentence for sentence, more in self._steps(response) if not more and sentence.text]
        spans = [broken_at(*sentence.where(), "no more alliteration than before") for sentence in found]
        return spans or ([] if self.keeps(response) else None)

    def _steps(self, response: str) -> list[tuple[View, bool]]:
        found = sentences(response)
        counts = [_alliterative(sentence.text) for sentence in found]
        return [
            (sentence, after > before) for sentence, (before, after) in zip(found, pairwise([-1, *counts]), strict=True)
        ]


@register("sentence:keyword")
class SentenceKeyword(Rule):
    """The N-th sentence has the word, in any case, also inside longer words. What breaks the rule: that sentence."""

    word: str = Field(min_length=1)
    """The word."""
    N: int = Field(ge=1)
    """Which sentence."""

    def keeps(self, response: str) -> bool:
        sentence = self._sentence(response)
        return sentence is not None and self.word.lower() in sentence.text.lower()

    def breaking(self, response: str) -> list[Span] | None:
        sentence = self._sentence(response)
        if sentence is None or self.keeps(response):
            return [] if sentence else None
        return [broken_at(*sentence.where(), f"without {self.word}")] if sentence.text else None

    def supporting(self, response: str) -> list[Span]:
        sentence = self._sentence(response)
        if sentence is None:
            return []
        return [kept_at(*sentence.place(*place), "keyword") for place in occurrences_anycase(self.word, sentence.text)]

    def scope(self) -> Scope:
        return "positive"

    def _sentence(self, response: str) -> View | None:
        found = sentences(response)
        return found[self.N - 1] if len(found) >= self.N else None


@register("sentence:increment")
class Increment(Rule):
    """Each sentence has exactly small_n more words than the one before. What breaks the rule: the sentences that have not."""

    small_n: int = Field(ge=0)
    """How many more."""

    def keeps(self, response: str) -> bool:
        return all(right for _, right in self._steps(response))

    def breaking(self, response: str) -> list[Span] | None:
        found = [sentence for sentence, right in self._steps(response) if not right and sentence.text]
        spans = [broken_at(*sentence.where(), f"not {self.small_n} more words than before") for sentence in found]
        return spans or ([] if self.keeps(response) else None)

    def _steps(self, response: str) -> list[tuple[View, bool]]:
        found = sentences(response)
        counts = [len(without(sentence).words()) for sentence in found]
        steps = zip(found[1:], pairwise(counts), strict=True)
        return [(sentence, after == before + self.small_n) for sentence, (before, after) in steps]


def _alliterative(sentence: str) -> int:
    """How many words share their first letter with a neighbour, counted by runs: two in a row are 2, three are 3."""
    letters = [clean[0] for word in sentence.lower().split() if (clean := word.lstrip(PUNCTUATION + " "))]
    same = [one == two for one, two in pairwise(letters)]
    starts = sum(here and not before for before, here in pairwise([False, *same]))
    return sum(same) + starts
