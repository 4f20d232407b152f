"""Replacement of disliked passages by texts that a recipe lists for their reasons."""

from __future__ import annotations

from fgrl.feedback.chains import RuleRewriter
from fgrl.kinds import ChainCase
from fgrl.registry import register
from fgrl.types import Span


@register("replace")
class Replace(RuleRewriter):
    """Replaces each disliked passage by the text for the first of its reasons that has one.

        rewriter: {name: replace, texts: {wrong_source: "according to the document", too_wordy: ""}, otherwise: "(removed)"}

    A passage without a text for any of its reasons gets `otherwise`; if that is null, the response has no chain. In a
    text, `{passage}` stands for the passage itself.
    """

    texts: dict[str, str] = {}
    """Replacement text by reason, with the reasons as the annotation page stores them (the ids of the taxonomy)."""
    otherwise: str | None = None
    """Replacement text of other passages; null: there is none."""

    def edit(self, text: str, span: Span, case: ChainCase) -> tuple[int, int, str]:
        new = next((self.texts[reason] for reason in span.reasons if reason in self.texts), self.otherwise)
        if new is None:
            raise ValueError(f"no text is named for any of its reasons: {', '.join(span.reasons) or '(none)'}")
        return span.start, span.end, new.replace("{passage}", text[span.start : span.end])
