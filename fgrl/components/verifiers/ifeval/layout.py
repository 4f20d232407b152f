"""IFEval's rules on the form of a response (its group `detectable_format`)."""

from __future__ import annotations

import json
import re
from typing import ClassVar

from pydantic import Field

from fgrl.feedback.rules.counted import Counted
from fgrl.feedback.rules.rule import Requires, Rule, broken_at, kept_in
from fgrl.feedback.rules.text import CharRange, lines, occurrences_of_any, ranges, trimmed
from fgrl.registry import register
from fgrl.types import Span

STAR_BULLET = re.compile(r"^[^\S\n]*+(\*[^\*].*)$", re.MULTILINE)
DASH_BULLET = re.compile(r"^[^\S\n]*+(-.*)$", re.MULTILINE)
HIGHLIGHT = re.compile(r"\*[^\n\*]*\*")
DOUBLE_HIGHLIGHT = re.compile(r"\*\*([^\n\*]*)\*\*")
OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@register("detectable_format:number_bullet_lists")
class NumberBulletLists(Counted):
    """The response has exactly the given number of bullet points: lines that begin with * or -."""

    what: ClassVar[str] = "bullet point"
    num_bullets: int = Field(ge=0)
    """Required number of bullet points."""

    def places(self, response: str) -> list[CharRange]:
        return sorted([*ranges(STAR_BULLET, response, 1), *ranges(DASH_BULLET, response, 1)])

    def bounds(self) -> tuple[int, int | None]:
        return self.num_bullets, self.num_bullets


@register("detectable_format:constrained_response")
class ConstrainedResponse(Requires):
    """The response contains "My answer is yes.", "My answer is no." or "My answer is maybe."."""

    def supporting(self, response: str) -> list[Span]:
        return kept_in(occurrences_of_any(OPTIONS, response), "answer")


@register("detectable_format:number_highlighted_sections")
class NumberHighlightedSections(Counted):
    """The response has at least a given number of highlighted sections: *like this* or **like this**."""

    what: ClassVar[str] = "highlighted section"
    num_highlights: int = Field(ge=0)
    """Minimum number of highlighted sections."""

    def places(self, response: str) -> list[CharRange]:
        single = [part for part in HIGHLIGHT.finditer(response) if part.group().strip("*").strip()]
        double = [part for part in DOUBLE_HIGHLIGHT.finditer(response) if part.group(1).strip()]
        return sorted(part.span() for part in [*single, *double])

    def bounds(self) -> tuple[int, int | None]:
        return self.num_highlights, None


@register("detectable_format:multiple_sections")
class MultipleSections(Counted):
    """The response has at least a given number of sections, each marked by a word and a number, such as "Section 1"."""

    what: ClassVar[str] = "section mark"
    section_spliter: str = Field(pattern=r"\S")
    """Word that marks a section (the spelling of the parameter is IFEval's); case matters."""
    num_sections: int = Field(ge=0)
    """Minimum number of sections."""

    def places(self, response: str) -> list[CharRange]:
        pattern = re.compile(rf"\s?({re.escape(self.section_spliter.strip())}\s?\d+)\s?")
        return ranges(pattern, response, 1)

    def bounds(self) -> tuple[int, int | None]:
        return self.num_sections, None


@register("detectable_format:json_format")
class JsonFormat(Rule):
    """The whole response is JSON, bare or in a fence of backticks.

    Violations: the first error of a parser, and everything after a complete value.
    """

    def keeps(self, response: str) -> bool:
        return self.breaking(response) == []

    def marks_breaks(self) -> bool:
        return True

    def breaking(self, response: str) -> list[Span] | None:
        start, end = _inside_fence(response)
        try:
            json.loads(response[start:end])
        except json.JSONDecodeError as error:
            at = start + error.pos
            if error.msg.startswith("Extra data"):
                return [broken_at(at, end, "after the JSON")]
            piece = re.match(r"\s*(\S+)", response[at:end])
            return None if piece is None else [broken_at(at + piece.start(1), at + piece.end(1), error.msg)]
        except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
            return None
        return []


@register("detectable_format:title")
class Title(Requires):
    """The response has a title in double angular brackets, such as <<poem of joy>>."""

    def supporting(self, response: str) -> list[Span]:
        titles = [
            line.part(line.text.find("<<"), line.text.rfind(">>") + 2) for line in lines(response) if "<<" in line.text
        ]
        return kept_in([title for title in titles if title.text.lstrip("<").rstrip(">").strip()], "title")


def _inside_fence(text: str) -> CharRange:
    """Return the characters inside ``` or ```json (in IFEval's three spellings), without surrounding white space."""
    body = text.strip()
    start = text.index(body)
    for fence in ("```json", "```Json", "```JSON", "```"):
        start += len(fence) * body.startswith(fence)
        body = body.removeprefix(fence)
    body = body.removesuffix("```")
    return trimmed(text, (start, start + len(body)))
