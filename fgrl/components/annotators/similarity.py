"""Similarity of a response to the label (RLA, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.feedback.reference_scores import ReferenceScorer
from fgrl.measuring.closeness import Closeness
from fgrl.registry import register
from fgrl.types import Sample


@register("similarity")
class Similarity(Closeness, ReferenceScorer):
    """A response's score is the cosine of its sentence embedding and the reference's (RLA, Eq. 2); if there are several
    references, the closest one counts. Samples whose references are missing or refusals are dropped and counted.
    """

    def scores(self, rows: Sequence[tuple[Sample, str, list[str]]]) -> list[float]:
        return self.cosines([text for _sample, text, _own in rows], [own for _sample, _text, own in rows])
