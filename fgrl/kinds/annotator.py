"""Annotators: they add scores, verdicts, critiques or spans to samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from fgrl.kinds.asker import Asker
from fgrl.registry import kind
from fgrl.types import Sample


@kind("annotator")
class Annotator(Asker, ABC):
    """Annotator of samples. It adds what rewards, pairs and metrics need: scores, verdicts, critiques, spans."""

    keeps_responses: ClassVar[bool] = False
    """True if samples keep their responses and get no others. A recipe that makes pairs from samples with one response
    each is then refused before it runs.
    """

    @abstractmethod
    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return annotated copies, in order. May add or drop samples, but never changes one in place. A judgement that
        failed is left missing (a score of None) and counted in `counts`.
        """

    def by_samples(self) -> bool:
        """Return True if each sample is annotated independently and `counts` are numbers that add up. `annotate` then
        gets some samples at a time, so that not all of them are in memory.
        """
        return False

    def failed(self) -> list[Sample]:
        """Return the samples that the last `annotate` left out because it failed, for `failed.jsonl` beside the
        product.
        """
        return []
