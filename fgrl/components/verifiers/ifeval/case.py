"""IFEval's rules on capital and small letters (its group `change_case`)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from pydantic import Field

from fgrl.feedback.rules.counted import Counted, related
from fgrl.feedback.rules.languages import LANGDETECT, language_of
from fgrl.feedback.rules.rule import Forbids, Relation, broken_in
from fgrl.feedback.rules.text import CharRange, runs
from fgrl.feedback.rules.word_tokens import tokens
from fgrl.registry import name_of, register
from fgrl.types import Span


@register("change_case:capital_word_frequency")
class CapitalWordFrequency(Counted):
    """The number of words in capital letters throughout is at least, or less than, a bound.

    Words are those of nltk's tokenizer, found without its data: a hyphenated word is one, "DON'T" is two (DO, N'T),
    single letters such as "I" count.
    """

    version = 2

    what: ClassVar[str] = "word in capitals"
    capital_frequency: int = Field(ge=0)
    """Bound on the number of words."""
    capital_relation: Relation
    """Meaning of the bound. `at least`: capital_frequency or more. `less than`: capital_frequency - 1 or fewer."""

    def places(self, response: str) -> list[CharRange]:
        return [word.where() for word in tokens(response) if word.text.isupper()]

    def bounds(self) -> tuple[int, int | None]:
        return related(self.capital_relation, self.capital_frequency)


class OneCase(Forbids):
    """All letters have the same case, and the language is English."""

    what: ClassVar[str]
    detect_language: bool = True
    """Also ask langdetect (`pip install 'fgrl[rules]'`) whether the language is English, as IFEval does. It is often
    wrong about short texts. If false, only the case of the letters counts.
    """

    @abstractmethod
    def right(self, text: str) -> bool:
        """Return True if the text, or the character, contains letters of the right case only, and at least one."""

    def check_machine(self) -> None:
        if self.detect_language:
            LANGDETECT.check()

    def keeps(self, response: str) -> bool:
        return self.right(response) and (not self.detect_language or language_of(response) in ("en", None))

    def faults(self, response: str) -> list[Span]:
        wrong = (at for at, letter in enumerate(response) if has_case(letter) and not self.right(letter))
        return broken_in(runs(wrong), self.what)

    def title(self) -> str:
        return name_of(self)[1] + ("" if self.detect_language else " (letters only)")


def has_case(character: str) -> bool:
    """Return True for a capital letter, a small letter, or a character that combines both, such as U+01C5."""
    return character.isupper() or character.islower() or character.istitle()


@register("change_case:english_capital")
class EnglishCapital(OneCase):
    """The response is in English and all its letters are capitals."""

    what: ClassVar[str] = "not in capitals"

    def right(self, text: str) -> bool:
        return text.isupper()


@register("change_case:english_lowercase")
class EnglishLowercase(OneCase):
    """The response is in English and has no capital letter."""

    what: ClassVar[str] = "capital letter"

    def right(self, text: str) -> bool:
        return text.islower()
