"""IFEval's rules on the beginning and end of a response."""

from __future__ import annotations

from pydantic import Field

from fgrl.feedback.rules.rule import Requires, broken_in, kept_at, kept_in
from fgrl.feedback.rules.text import View, lowered, whole
from fgrl.registry import register
from fgrl.types import Span


@register("startend:end_checker")
class EndChecker(Requires):
    """The response ends with a phrase, in any case; a double quotation mark may follow.

    Violations: everything after the last occurrence of the phrase.
    """

    end_phrase: str = Field(pattern=r"\S")
    """Phrase at the end."""

    def keeps(self, response: str) -> bool:
        return self._body(response).text.endswith(self._phrase())

    def faults(self, response: str) -> list[Span]:
        body, phrase = self._body(response), self._phrase()
        last = body.text.rfind(phrase)
        if last < 0:
            return []
        rest = body.part(last + len(phrase), len(body.text)).stripped()
        return broken_in([rest], "after the last phrase")

    def supporting(self, response: str) -> list[Span]:
        if not self.keeps(response):
            return []
        body = self._body(response)
        return [kept_at(*body.place(len(body.text) - len(self._phrase()), len(body.text)), "last phrase")]

    def _phrase(self) -> str:
        return self.end_phrase.strip().lower()

    def _body(self, response: str) -> View:
        return lowered(whole(response).stripped().stripped('"'))


@register("startend:quotation")
class Quotation(Requires):
    """The whole response is wrapped in double quotation marks (the straight ones of ASCII)."""

    def keeps(self, response: str) -> bool:
        text = response.strip()
        return len(text) > 1 and text[0] == '"' and text[-1] == '"'

    def supporting(self, response: str) -> list[Span]:
        body = whole(response).stripped()
        ends = [body.part(0, 1), body.part(len(body.text) - 1, len(body.text))]
        return kept_in([end for end in ends if end.text == '"'], "quotation mark")
