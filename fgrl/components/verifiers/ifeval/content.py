"""IFEval's rules on placeholders and postscripts."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from fgrl.feedback.rules.counted import Counted
from fgrl.feedback.rules.rule import Requires, kept_in
from fgrl.feedback.rules.text import CharRange, lowered, ranges, whole
from fgrl.registry import register
from fgrl.types import Span

UP_TO_BRACKET = re.compile(r"[^\]\n]*+\]?")
"""A piece of a line that ends with a closing bracket, or with the line. It always matches, so no character is tried
twice.
"""


@register("detectable_content:number_placeholders")
class NumberPlaceholders(Counted):
    """The response has at least a given number of placeholders in square brackets, such as [address]."""

    what: ClassVar[str] = "placeholder"
    num_placeholders: int = Field(ge=0)
    """Minimum number of placeholders."""

    def places(self, response: str) -> list[CharRange]:
        pieces = [piece for piece in UP_TO_BRACKET.finditer(response) if piece[0].endswith("]") and "[" in piece[0]]
        return [(piece.start() + piece[0].index("["), piece.end()) for piece in pieces]

    def bounds(self) -> tuple[int, int | None]:
        return self.num_placeholders, None


@register("detectable_content:postscript")
class Postscript(Requires):
    """The response has a postscript that starts with the marker, in any case; it extends to the end of that line.

    As in IFEval, it may occur anywhere. "P.S." and "P.P.S" may have spaces inside ("P. S.").
    """

    postscript_marker: str = Field(pattern=r"\S")
    """Beginning of the postscript: "P.S.", "P.P.S" or any other text."""

    def supporting(self, response: str) -> list[Span]:
        view = lowered(whole(response))
        marker = self.postscript_marker.strip()
        known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
        pattern = re.compile(known.get(marker, re.escape(marker.lower())) + ".*$", re.MULTILINE)
        return kept_in([view.place(*line) for line in ranges(pattern, view.text)], "postscript")
