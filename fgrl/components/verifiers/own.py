"""Rules of other data sets that neither IFEval nor IFBench has."""

from __future__ import annotations

from string import ascii_lowercase

from pydantic import Field

from fgrl.feedback.rules.rule import Forbids, Requires, broken_in, kept_at
from fgrl.feedback.rules.text import whole
from fgrl.registry import register
from fgrl.types import Span


@register("case:capitalized_words")
class CapitalizedWords(Forbids):
    """No word begins with a small letter from a to z; words are the pieces between white space.

    MulDimIF's "capitalized letters for each word". A word that begins with a digit, a mark or another small letter (é)
    is accepted.
    """

    def faults(self, response: str) -> list[Span]:
        words = whole(response).words()
        return broken_in([word for word in words if word.text[0] in ascii_lowercase], "begins with a small letter")


@register("end:last_characters")
class LastCharacters(Requires):
    """The response ends with these characters. Only white space may follow, but no closing quotation mark."""

    characters: str = Field(pattern=r"\S$")
    """Required characters, such as a period; case matters."""

    def supporting(self, response: str) -> list[Span]:
        text = response.rstrip()
        start = len(text) - len(self.characters)
        return [kept_at(start, len(text), "last characters")] if text.endswith(self.characters) else []
