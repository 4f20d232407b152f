"""IFEval's rules on the response as a whole: two answers, and the repeated request."""

from __future__ import annotations

import re

from pydantic import Field

from fgrl.feedback.rules.rule import Requires, Rule, broken_in, kept_at, kept_in
from fgrl.feedback.rules.text import CharRange, full_and_hollow, lowered, pieces_between, ranges, whole
from fgrl.registry import register
from fgrl.types import Span

SIX_STARS = re.compile(re.escape("******"))


@register("combination:two_responses")
class TwoResponses(Rule):
    """The response consists of two different responses, separated by six asterisks: ******.

    Violations: responses beyond the second, a second response that repeats the first, asterisks with nothing before
    them.
    """

    def keeps(self, response: str) -> bool:
        full, hollow = self._pieces(response)
        return len(full) == 2 and not hollow and len({response[slice(*place)].strip() for place in full}) == 2

    def faults(self, response: str) -> list[Span]:
        full, hollow = self._pieces(response)
        if hollow:
            return broken_in([(end, end + 6) for _, end in hollow], "nothing between two separators")
        if len(full) == 2:
            return broken_in(full[1:], "the same response again")
        return broken_in(full[2:], "a third response")

    def supporting(self, response: str) -> list[Span]:
        return kept_in(ranges(SIX_STARS, response), "separator")

    def _pieces(self, response: str) -> tuple[list[CharRange], list[CharRange]]:
        """Return the pieces that are not blank, and the blank ones between two separators."""
        return full_and_hollow(response, pieces_between(SIX_STARS, response))


@register("combination:repeat_prompt")
class RepeatPrompt(Requires):
    """The response begins with the request, word for word, in any case."""

    prompt_to_repeat: str = Field(pattern=r"\S")
    """Text of the request."""

    def supporting(self, response: str) -> list[Span]:
        wanted = self.prompt_to_repeat.strip().lower()
        view = lowered(whole(response).stripped())
        return [kept_at(*view.place(0, len(wanted)), "request")] if view.text.startswith(wanted) else []
