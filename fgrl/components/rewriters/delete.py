"""Deletion of disliked passages."""

from __future__ import annotations

from typing import Literal

from fgrl.feedback import text_units
from fgrl.feedback.chains import RuleRewriter
from fgrl.kinds import ChainCase
from fgrl.registry import register
from fgrl.types import Span

CLOSING = ",.;:!?)]}"


@register("delete")
class Delete(RuleRewriter):
    """Deletes each disliked passage, or the sentences that contain it, with the white space that would be left over.

    A response of which nothing would be left has no chain. The same applies if an earlier step has already deleted a
    whole disliked passage. Rewrites have the author `delete`, or the name in `by`.
    """

    unit: Literal["passage", "sentence"] = "passage"
    """Unit of deletion: the marked characters, or every sentence that contains some of them."""

    def edit(self, text: str, span: Span, case: ChainCase) -> tuple[int, int, str]:
        start, end = span.start, span.end
        if start == end:
            raise ValueError("nothing is left of the passage")
        if self.unit == "sentence":
            touched = [(first, last) for first, last in text_units.sentences(text) if first < end and start < last]
            if touched:
                start, end = min(start, touched[0][0]), max(end, touched[-1][1])
        start, end = _with_spare_space(text, start, end)
        if not (text[:start] + text[end:]).strip():
            raise ValueError("nothing would be left of the response")
        return start, end, ""


def _with_spare_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the characters to delete. They include one white-space character if two would otherwise meet, or if one
    would begin or end the text or precede a punctuation mark.
    """
    before, after = text[start - 1 : start], text[end : end + 1]
    if before.isspace() and (not after or after.isspace() or after in CLOSING):
        return start - 1, end
    if not before and after.isspace():
        return start, end + 1
    return start, end
