"""Common parts of annotators that score responses by the sample's references."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from fgrl.feedback.rules.refusals import answers_among
from fgrl.kinds import Annotator
from fgrl.registry import Settings
from fgrl.types import Sample


class Labelled(Settings):
    """Settings of components that compare responses with references."""

    refusals: list[str] = ["No Answer Present."]
    """References that are not answers. They are compared without case and punctuation. Nothing is scored against them,
    and a prompt that has no other reference is dropped.
    """

    def usable(self, references: str | Sequence[str] | None) -> list[str]:
        """Return the references that are neither empty nor refusals."""
        return answers_among(references, self.refusals)


class ReferenceScorer(Labelled, Annotator):
    """Annotator that scores responses by references. It drops and counts samples whose references are all missing or
    refusals, and samples without any score.
    """

    keeps_responses = True

    @abstractmethod
    def scores(self, rows: Sequence[tuple[Sample, str, list[str]]]) -> Sequence[float | None]:
        """Return the score of each row: a sample, one of its responses, and the sample's usable references. None means
        that the score is missing.
        """

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the scored samples. Counts: number of dropped samples by reason."""
        usable = [self.usable(sample.reference) for sample in samples]
        kept = [(sample, own) for sample, own in zip(samples, usable, strict=True) if own and sample.responses]
        scores = iter(
            self.scores([(sample, response.text, own) for sample, own in kept for response in sample.responses])
        )
        scored = [sample.with_scores([next(scores) for _ in sample.responses]) for sample, _own in kept]
        annotated = [sample for sample in scored if any(response.score is not None for response in sample.responses)]
        counts = {
            "without a reference": sum(not own for own in usable),
            "without responses": sum(not sample.responses for sample in samples),
            "of empty responses alone": len(scored) - len(annotated),
        }
        self._counted = {name: count for name, count in counts.items() if count}
        return annotated
