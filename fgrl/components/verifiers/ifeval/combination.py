"""IFEval's rules on the response as a whole: two answers, the request repeated."""

from __future__ import annotations

import re

from pydantic import Field

from fgrl.kinds import Scope
from fgrl.registry import register
from fgrl.rules.rule import Rule, broken_at, kept_at
from fgrl.rules.text import lowered, pieces_between, whole
from fgrl.types import Span

SIX_STARS = re.compile(re.escape("******"))


@register("combination:two_responses")
class TwoResponses(Rule):
    """The response is two different responses with six asterisks between them: ******.

    What breaks it: responses beyond the second, a second one that repeats the first, asterisks with nothing before them.
    """

    def keeps(self, response: str) -> bool:
        return self.breaking(response) == []

    def breaking(self, response: str) -> list[Span] | None:
        pieces = pieces_between(SIX_STARS, response)
        full = [place for place in pieces if response[slice(*place)].strip()]
        hollow = [end for start, end in pieces[1:-1] if not response[start:end].strip()]
        if hollow:
            return [broken_at(end, end + 6, "nothing between two separators") for end in hollow]
        if len(full) > 2:
            return [broken_at(*place, "a third response") for place in full[2:]]
        if len(full) < 2:
            return None
        first, second = (response[slice(*place)].strip() for place in full)
        return [] if first != second else [broken_at(*full[1], "the same response again")]

    def supporting(self, response: str) -> list[Span]:
        return [kept_at(*found.span(), "separator") for found in SIX_STARS.finditer(response)]


@register("combination:repeat_prompt")
class RepeatPrompt(Rule):
    """The response begins with the request, word for word, in any case."""

    prompt_to_repeat: str = Field(pattern=r"\S")
    """The request."""

    def keeps(self, response: str) -> bool:
        return bool(self.supporting(response))

    def supporting(self, response: str) -> list[Span]:
        wanted = self.prompt_to_repeat.strip().lower()
        view = lowered(whole(response).stripped())
        return [kept_at(*view.place(0, len(wanted)), "request")] if view.text.startswith(wanted) else []

    def scope(self) -> Scope:
        return "positive"
