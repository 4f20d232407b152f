"""Segmenters, which divide responses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import model_validator

from fgrl.base import lazy, ops
from fgrl.kinds.functions import checked_starts, own_code
from fgrl.kinds.needs import check_needs
from fgrl.registry import Component, kind
from fgrl.types import Rollout, Segmentable

if TYPE_CHECKING:
    from torch import Tensor
torch = lazy.load("torch")

FIELDS = {"entropy": "ref_entropy", "text": "offsets"}
"""Fields of a rollout that a segmenter reads, by its needs."""


@kind("segmenter")
class Segmenter(Component, ABC):
    """Segmenter that divides responses into segments, the actions that receive rewards."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Inputs of `starts` besides ids and masks: "entropy" of the reference, "text" with offsets."""

    include_eos: bool = False
    """Count the end-of-sequence token as part of the last segment."""

    @model_validator(mode="after")
    def _known_needs(self) -> Segmenter:
        check_needs(self, self.needs, ("entropy", "text"))
        return self

    @abstractmethod
    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: True for a token that starts a segment. The first token of a turn always starts one, and
        the text of an environment is in no segment.
        """

    def segment_ids(self, view: Segmentable) -> Tensor:
        """Return long [B,T]: the index of the segment each token belongs to, -1 for none.

        The first token of a response, and of each turn of a conversation, always starts a segment. The end-of-sequence
        token belongs to none (unless `include_eos`), except in a turn without other tokens: then it is the only segment.
        """
        inside = ops.inside_segments(view.mask, view.eos, self.include_eos, view.turn)
        with own_code(self, "starts"):
            value = self.starts(view)
        return ops.segment_ids(checked_starts(self, value, view), inside, view.turn)

    def rollout_needs(self) -> frozenset[str]:
        """Fields of a rollout that `segment_ids_of` reads. A component that calls it adds them to its `needs`."""
        return frozenset(FIELDS[need] for need in self.needs)

    def segment_ids_of(self, rollout: Rollout) -> Tensor:
        """Return the `segment_ids` of a rollout's responses. The tokens that end turns are ends of sequences, too."""
        ends = torch.tensor(sorted(rollout.ends), dtype=torch.long, device=rollout.mask.device)
        of_turns = torch.isin(rollout.response_ids, ends) & ops.segment_ends(rollout.turn_ids)
        return self.segment_ids(
            Segmentable(
                ids=rollout.response_ids, mask=rollout.mask, eos=rollout.eos | of_turns, turn=rollout.turn,
                entropy=rollout.ref_entropy, texts=rollout.texts, offsets=rollout.offsets,
            )
        )  # fmt: skip
