"""Relevance from the rules themselves: labels without an annotator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fgrl.base import ops
from fgrl.feedback.rules.rule import relevant
from fgrl.kinds import Checked, Relevance
from fgrl.registry import register
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor


@register("oracle")
class Oracle(Relevance):
    """Weight 1 on the characters on which a rule's verdict depends, as reported by the rule itself, and 0 elsewhere.

    A rule that requires something marks it when the rule is satisfied, a rule that forbids something marks it when the
    rule is violated. A rule on the whole response, and a violation without a place, mark all of it ("Rubrics to
    Tokens", appendix C.3). Criteria that a judge decides, or with a missing verdict, have no weights.
    """

    version = 2
    token_policy: ops.TokenPolicy = ops.TOKEN_POLICY
    """Rule by which a token counts as marked: it lies inside a marked span, apart from white space at its beginning
    (`words`) or completely (`inside`), it starts in the span (`start`), or it shares a character with it (`overlap`). A
    mark inside a single token marks that token.
    """

    include_eos: bool = True
    """If true, the token that ends a response counts if all other tokens count; if false, it never counts."""

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"})

    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        every = rollout.filled("offsets")
        marked = uncovered = 0
        weights: list[Tensor | None] = []
        for case in checked:
            if case.rule is None or case.kept is None:
                weights.append(None)
                continue
            offsets = every[case.row]
            text = rollout.texts[case.row]
            spans = relevant(case.rule, text)
            marked += len(spans)
            uncovered += len(ops.uncovered_spans(spans, offsets, text, self.token_policy, partial=True))
            marks = ops.spans_to_tokens(spans, offsets, text, self.token_policy, partial=True)
            weight = ops.without_characters(marks, offsets)
            if not self.include_eos and bool(rollout.eos[case.row].any()):
                weight[-1] = 0.0
            weights.append(weight)
        self._counts = {"marked": marked / max(1, len(checked)), "uncovered": uncovered / max(1, marked)}
        return weights
