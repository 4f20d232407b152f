"""IFEval's rules on placeholders and postscripts."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from fgrl.registry import register
from fgrl.rules.counted import Counted
from fgrl.rules.rule import Requires, kept_at
from fgrl.rules.text import Place, lowered, whole
from fgrl.types import Span

PLACEHOLDER = re.compile(r"\[.*?\]")


@register("detectable_content:number_placeholders")
class NumberPlaceholders(Counted):
    """The response has at least so many placeholders in square brackets, such as [address]."""

    what: ClassVar[str] = "placeholder"
    num_placeholders: int = Field(ge=0)
    """How many, or more."""

    def places(self, response: str) -> list[Place]:
        return [placeholder.span() for placeholder in PLACEHOLDER.finditer(response)]

    def bounds(self) -> tuple[int, int | None]:
        return self.num_placeholders, None


@register("detectable_content:postscript")
class Postscript(Requires):
    """The response has a postscript that starts with the marker, in any case; it is the rest of that line.

    As in IFEval it may stand anywhere. "P.S." and "P.P.S" may have spaces inside ("P. S.").
    """

    postscript_marker: str = Field(pattern=r"\S")
    """How it starts: "P.S.", "P.P.S" or any other text."""

    def supporting(self, response: str) -> list[Span]:
        view = lowered(whole(response))
        lines = re.finditer(self._pattern(), view.text, re.MULTILINE)
        return [kept_at(*view.place(*line.span()), "postscript") for line in lines]

    def _pattern(self) -> str:
        marker = self.postscript_marker.strip()
        known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
        return known.get(marker, re.escape(marker.lower())) + ".*$"
