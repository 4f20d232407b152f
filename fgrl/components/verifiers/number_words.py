"""So many words."""

from __future__ import annotations

from pydantic import Field

from fgrl.registry import register
from fgrl.rules.rule import Relation, Rule, broken_at
from fgrl.rules.words import WORD, count_words
from fgrl.types import Span


@register("length_constraints:number_words")
class NumberWords(Rule):
    r"""The response has at least, or less than, so many words.

    A rule of IFEval (Zhou et al. 2023) under its id, with its parameters and its count: a word is a run of letters,
    digits and underscores (`\w+`), so "don't" is two. What breaks "less than" is every word from the `num_words`-th
    on; a response that is too short breaks "at least" nowhere in particular.
    """

    relation: Relation
    """`at least`: num_words or more. `less than`: num_words - 1 or fewer."""
    num_words: int = Field(ge=1)
    """The bound."""

    def keeps(self, response: str) -> bool:
        words = count_words(response)
        return words >= self.num_words if self.relation == "at least" else words < self.num_words

    def faults(self, response: str) -> list[Span]:
        extra = list(WORD.finditer(response))[self.num_words - 1 :] if self.relation == "less than" else []
        return [broken_at(word.start(), word.end(), f"word {self.num_words} or later") for word in extra]
