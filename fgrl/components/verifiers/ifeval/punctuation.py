"""IFEval's rule on commas (its group `punctuation`)."""

from __future__ import annotations

from fgrl.feedback.rules.rule import Forbids, broken_in
from fgrl.feedback.rules.text import occurrences
from fgrl.registry import register
from fgrl.types import Span


@register("punctuation:no_comma")
class NoComma(Forbids):
    """The response has no comma.

    A rule of IFEval (Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models") under its id. As
    in IFEval, only the character U+002C is a comma, not a full-width, ideographic or Arabic comma.
    """

    def faults(self, response: str) -> list[Span]:
        return broken_in(occurrences(",", response), "comma")
