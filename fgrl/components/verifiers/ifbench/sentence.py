"""IFBench's rules on each sentence."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field

from fgrl.feedback.rules.rule import Requires, Rule, broken_in, kept_in
from fgrl.feedback.rules.sentences import sentences
from fgrl.feedback.rules.text import PUNCTUATION, View, occurrences_anycase, without
from fgrl.registry import register
from fgrl.types import Span


@register("sentence:alliteration_increment")
class AlliterationIncrement(Rule):
    """Each sentence has more alliterative words (neighbours with the same first letter) than the one before.

    Violations: the sentences that do not.
    """

    def keeps(self, response: str) -> bool:
        return not self._wrong(response)

    def faults(self, response: str) -> list[Span]:
        return broken_in(self._wrong(response), "no more alliteration than before")

    def _wrong(self, response: str) -> list[View]:
        """Return the sentences that do not have more alliterative words than the sentence before."""
        views = sentences(response)
        counts = pairwise([-1, *(_alliterative(sentence.text) for sentence in views)])
        return [sentence for sentence, (before, after) in zip(views, counts, strict=True) if after <= before]


@register("sentence:keyword")
class SentenceKeyword(Requires):
    """The N-th sentence contains the word, in any case, also inside longer words. Violations: this sentence."""

    word: str = Field(min_length=1)
    """Word that the sentence must contain."""
    N: int = Field(ge=1)
    """Number of the sentence, from 1."""

    def keeps(self, response: str) -> bool:
        return any(self.word.lower() in sentence.text.lower() for sentence in self._asked(response))

    def faults(self, response: str) -> list[Span]:
        return broken_in(self._asked(response), f"without {self.word}")

    def supporting(self, response: str) -> list[Span]:
        return kept_in(
            (
                sentence.place(*place)
                for sentence in self._asked(response)
                for place in occurrences_anycase(self.word, sentence.text)
            ),
            "keyword",
        )

    def _asked(self, response: str) -> list[View]:
        """Return a list with the N-th sentence; empty if there are fewer sentences."""
        return sentences(response)[self.N - 1 : self.N]


@register("sentence:increment")
class Increment(Rule):
    """Each sentence has exactly small_n more words than the sentence before. Violations: the sentences that do not."""

    small_n: int = Field(ge=0)
    """Required increase in the number of words."""

    def keeps(self, response: str) -> bool:
        return not self._wrong(response)

    def faults(self, response: str) -> list[Span]:
        return broken_in(self._wrong(response), f"not {self.small_n} more words than before")

    def _wrong(self, response: str) -> list[View]:
        """Return the sentences after the first that do not have the required number of additional words."""
        views = sentences(response)
        counts = [len(without(sentence).words()) for sentence in views]
        steps = zip(views[1:], pairwise(counts), strict=True)
        return [sentence for sentence, (before, after) in steps if after != before + self.small_n]


def _alliterative(sentence: str) -> int:
    """Return the number of words that share their first letter with a neighbour, counted by runs: two in a row are 2,
    three are 3.
    """
    letters = [clean[0] for word in sentence.lower().split() if (clean := word.lstrip(PUNCTUATION + " "))]
    same = [before == after for before, after in pairwise(letters)]
    starts = sum(after and not before for before, after in pairwise([False, *same]))
    return sum(same) + starts
