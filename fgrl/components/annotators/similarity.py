"""How close a response is to the label (RLA, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import PrivateAttr

from fgrl.evaluation.closeness import Closeness
from fgrl.kinds import Annotator
from fgrl.registry import register
from fgrl.rules.refusals import answers_among
from fgrl.types import Sample


@register("similarity")
class Similarity(Closeness, Annotator):
    """A response's score is the cosine of its sentence embedding and the reference's (RLA, Eq. 2); of several
    references the closest counts. Samples whose references are missing or refusals are dropped and counted."""

    refusals: list[str] = ["No Answer Present."]
    """References that are no answers, compared without case and punctuation: no response is scored against one."""

    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        references = [answers_among(sample.reference, self.refusals) for sample in samples]
        kept = [(sample, own) for sample, own in zip(samples, references, strict=True) if own and sample.responses]
        flat = [(response.text, own) for sample, own in kept for response in sample.responses]
        cosines = iter(self.cosines([text for text, _ in flat], [own for _, own in flat]))
        self._counts = {
            "without a reference": sum(not own for own in references),
            "without responses": sum(not sample.responses for sample in samples),
        }
        return [sample.with_scores([next(cosines) for _ in sample.responses]) for sample, _ in kept]

    def counts(self) -> dict[str, Any]:
        return {name: count for name, count in self._counts.items() if count}
