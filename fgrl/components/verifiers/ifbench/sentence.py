"""IFBench's rules on each sentence."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field

from fgrl.registry import register
from fgrl.rules.rule import Requires, Rule, broken_at, kept_at
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

    def faults(self, response: str) -> list[Span]:
        wrong = [sentence for sentence, more in self._steps(response) if not more and sentence.text]
        return [broken_at(*sentence.where(), "no more alliteration than before") for sentence in wrong]

    def _steps(self, response: str) -> list[tuple[View, bool]]:
        """Each sentence, and whether it has more than the one before."""
        views = sentences(response)
        counts = pairwise([-1, *(_alliterative(sentence.text) for sentence in views)])
        return [(sentence, after > before) for sentence, (before, after) in zip(views, counts, strict=True)]


@register("sentence:keyword")
class SentenceKeyword(Requires):
    """The N-th sentence has the word, in any case, also inside longer words. What breaks the rule: that sentence."""

    word: str = Field(min_length=1)
    """The word."""
    N: int = Field(ge=1)
    """Which sentence."""

    def keeps(self, response: str) -> bool:
        sentence = self._sentence(response)
        return sentence is not None and self.word.lower() in sentence.text.lower()

    def faults(self, response: str) -> list[Span]:
        sentence = self._sentence(response)
        return [broken_at(*sentence.where(), f"without {self.word}")] if sentence and sentence.text else []

    def supporting(self, response: str) -> list[Span]:
        sentence = self._sentence(response)
        if sentence is None:
            return []
        return [kept_at(*sentence.place(*place), "keyword") for place in occurrences_anycase(self.word, sentence.text)]

    def _sentence(self, response: str) -> View | None:
        views = sentences(response)
        return views[self.N - 1] if len(views) >= self.N else None


@register("sentence:increment")
class Increment(Rule):
    """Each sentence has exactly small_n more words than the one before. What breaks the rule: the sentences that have not."""

    small_n: int = Field(ge=0)
    """How many more."""

    def keeps(self, response: str) -> bool:
        return all(right for _, right in self._steps(response))

    def faults(self, response: str) -> list[Span]:
        wrong = [sentence for sentence, right in self._steps(response) if not right and sentence.text]
        return [broken_at(*sentence.where(), f"not {self.small_n} more words than before") for sentence in wrong]

    def _steps(self, response: str) -> list[tuple[View, bool]]:
        """Each sentence but the first, and whether it has as many more words as asked."""
        views = sentences(response)
        counts = [len(without(sentence).words()) for sentence in views]
        steps = zip(views[1:], pairwise(counts), strict=True)
        return [(sentence, after == before + self.small_n) for sentence, (before, after) in steps]


def _alliterative(sentence: str) -> int:
    """How many words share their first letter with a neighbour, counted by runs: two in a row are 2, three are 3."""
    letters = [clean[0] for word in sentence.lower().split() if (clean := word.lstrip(PUNCTUATION + " "))]
    same = [before == after for before, after in pairwise(letters)]
    starts = sum(after and not before for before, after in pairwise([False, *same]))
    return sum(same) + starts
