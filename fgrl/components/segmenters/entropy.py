"""Segments that begin where the reference model is uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fgrl.base import ops
from fgrl.kinds import Segmenter
from fgrl.registry import register
from fgrl.types import Segmentable

if TYPE_CHECKING:
    from torch import Tensor

WHOLE_RESPONSE = 1000.0


@register("entropy")
class Entropy(Segmenter):
    """A token starts a segment when the reference is uncertain about it: H(pi_SFT(. | x, y_<t)) > cutoff (section 2.2).

    The entropy is always that of the frozen SFT model, also for responses that the policy wrote, and of the
    distribution for token t. A cutoff of 1000 or more, which no entropy reaches, is the paper's way to write `bandit`:
    one segment, ended by the end-of-sequence token, which counts as part of it. With a lower cutoff the end-of-sequence
    token counts only with `include_eos`. With cutoff 0 every token starts a segment unless its entropy is exactly 0;
    the segmenter `token` has no such exception and needs no reference.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    cutoff: float = Field(ge=0, le=1e6)
    """Entropy in nats above which (strictly) a token starts a segment."""

    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: True at real tokens whose entropy is above the cutoff.

        Raises ValueError if the entropies are missing, or NaN at real tokens.
        """
        if view.entropy is None:
            raise ValueError("the entropy segmenter needs the reference's entropies, and this view has none")
        not_a_number = int((view.entropy.isnan() & view.mask).sum())
        if not_a_number:
            raise ValueError(
                f"the reference's entropy is NaN at {not_a_number} of {int(view.mask.sum())} response tokens"
            )
        return view.mask & (view.entropy > self.cutoff)

    def segment_ids(self, view: Segmentable) -> Tensor:
        """Return long [B,T] as in `Segmenter.segment_ids`; a cutoff of 1000 includes the end-of-sequence token."""
        with_eos = self.include_eos or self.cutoff >= WHOLE_RESPONSE
        return ops.segment_ids(
            self.starts(view), ops.inside_segments(view.mask, view.eos, with_eos, view.turn), view.turn
        )
