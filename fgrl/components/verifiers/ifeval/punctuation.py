"""IFEval's rule on commas (its group `punctuation`)."""

from __future__ import annotations

from fgrl.registry import register
from fgrl.rules.rule import Forbids, broken_at
from fgrl.types import Span


@register("punctuation:no_comma")
class NoComma(Forbids):
    """The response has no comma.

    A rule of IFEval (Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models") under its id. As
    there, a comma is the character U+002C alone: a full-width, ideographic or Arabic comma is none.
    """

    def keeps(self, response: str) -> bool:
        return "," not in response

    def faults(self, response: str) -> list[Span]:
        return [broken_at(at, at + 1, "comma") for at, character in enumerate(response) if character == ","]
