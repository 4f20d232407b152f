"""Relevance from the rules themselves: labels without any annotator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import PrivateAttr

from fgrl import ops
from fgrl.kinds import Checked, Relevance
from fgrl.registry import register
from fgrl.rules.loose import relevant
from fgrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor


@register("oracle")
class Oracle(Relevance):
    """Weight 1 on the characters that a rule itself says its verdict hangs on, 0 elsewhere.

    What must be there is marked where the rule is kept, what must not be there where it is broken; a rule on the whole
    response, and one that is broken nowhere in particular, marks all of it ("Rubrics to Tokens", appendix C.3). It says
    nothing of criteria that a judge decides, or whose verdict is missing.
    """

    token_policy: Literal["overlap", "inside", "start"] = "overlap"
    """A token counts when it shares a character with what is marked, lies inside it, or starts in it."""

    end: bool = True
    """The token that ends a response counts where all the others do; False never counts it."""

    _counts: dict[str, float] = PrivateAttr(default_factory=dict)

    def needs(self) -> frozenset[str]:
        return frozenset({"offsets"})

    def counts(self) -> dict[str, float]:
        return self._counts

    def weigh(self, rollout: Rollout, checked: Sequence[Checked]) -> list[Tensor | None]:
        if rollout.offsets is None:
            raise ValueError("the rollout has no offsets; ask for them in `needs`")
        marked = uncovered = 0
        found: list[Tensor | None] = []
        for one in checked:
            if one.rule is None or one.kept is None:
                found.append(None)
                continue
            offsets = rollout.offsets[one.row]
            spans = relevant(one.rule, rollout.texts[one.row])
            marked += len(spans)
            uncovered += len(ops.uncovered_spans(spans, offsets, self.token_policy))
            weight = ops.without_characters(ops.spans_to_tokens(spans, offsets, self.token_policy), offsets)
            if not self.end and bool(rollout.eos[one.row].any()):
                weight[-1] = 0.0
            found.append(weight)
        self._counts = {"marked": marked / max(1, len(checked)), "uncovered": uncovered / max(1, marked)}
        return found
