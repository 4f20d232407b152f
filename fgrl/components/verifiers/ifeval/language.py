"""IFEval's rule on the language of a response."""

from __future__ import annotations

from fgrl.feedback.rules.languages import LANGDETECT, Language, language_of
from fgrl.feedback.rules.rule import Rule
from fgrl.registry import register


@register("language:response_language")
class ResponseLanguage(Rule):
    """The response is in a given language, as detected by langdetect (`pip install 'fgrl[rules]'`).

    As in IFEval, a response without any sign of a language (only digits, for example) satisfies the rule: combine it
    with another rule that such a response violates.
    """

    language: Language
    """ISO 639-1 code of the language."""

    def check_machine(self) -> None:
        LANGDETECT.check()

    def keeps(self, response: str) -> bool:
        return language_of(response) in (self.language, None)
