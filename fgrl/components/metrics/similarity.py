"""Similarity of answers to their references."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.closeness import Closeness
from fgrl.measuring.comparison import mean
from fgrl.measuring.references import Referenced
from fgrl.measuring.statistics import Measured
from fgrl.registry import register


@register("similarity")
class SimilarityMetric(Closeness, Referenced):
    """Cosine of the sentence embeddings of answer and reference, the closest of several (RLA, section 4.2); -1 to 1.

    An empty answer counts -1.
    """

    meanings = {"cosine": Meaning("similarity to the reference (cosine)", "higher")}

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        return {"cosine": mean(answers, self.scores(answers)["cosine"])}

    def scores(self, answers: Sequence[Answer]) -> dict[str, list[float | None]]:
        """Return the cosine of each answer, as in RLA's appendix E; None without a reference."""
        references = [self.usable(answer.references) for answer in answers]
        known = [place for place, own in enumerate(references) if own]
        cosines = self.cosines([answers[place].text for place in known], [references[place] for place in known])
        by_place = dict(zip(known, cosines, strict=True))
        return {"cosine": [by_place.get(place) for place in range(len(answers))]}
