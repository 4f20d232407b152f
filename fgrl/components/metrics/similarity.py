"""How close answers are to their references."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.evaluation.answer import Answer
from fgrl.evaluation.closeness import Closeness
from fgrl.evaluation.comparison import mean
from fgrl.evaluation.references import Referenced
from fgrl.evaluation.statistics import Measured
from fgrl.kinds import Meaning
from fgrl.registry import register


@register("similarity")
class SimilarityMetric(Closeness, Referenced):
    """Cosine of the sentence embeddings of answer and reference, the closest of several (RLA, section 4.2); -1 to 1.

    An empty answer counts -1.
    """

    meanings = {"cosine": Meaning("similarity to the reference (cosine)", "higher")}

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        references = [self.usable(answer.references) for answer in answers]
        return {"cosine": mean(answers, self.cosines([answer.text for answer in answers], references))}
