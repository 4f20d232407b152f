"""Disliked passages are replaced by texts that a recipe names for their reasons."""

from __future__ import annotations

from fgrl.feedback.chains import RuleRewriter
from fgrl.kinds import ChainCase
from fgrl.registry import register
from fgrl.types import Span


@register("replace")
class Replace(RuleRewriter):
    """Replaces each disliked passage by the text for the first of its reasons that has one.

        rewriter: {name: replace, texts: {wrong_source: "according to the document", too_wordy: ""}, otherwise: "(removed)"}

    A passage without a text for any of its reasons gets `otherwise`; where that is null, the response has no chain. In
    a text, `{passage}` stands for the passage itself.
    """

    texts: dict[str, str] = {}
    """The new text by reason, as the annotation page stores reasons (the ids of the taxonomy)."""
    otherwise: str | None = None
    """The new text of other passages; null: there is none."""

    def edit(self, text: str, span: Span, case: ChainCase) -> tuple[int, int, str]:
        new = next((self.texts[reason] for reason in span.reasons if reason in self.texts), self.otherwise)
        if new is None:
            raise ValueError(f"no text is named for any of its reasons: {', '.join(span.reasons) or '(none)'}")
        return span.start, span.end, new.replace("{passage}", text[span.start : span.end])
