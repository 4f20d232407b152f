"""Common parts of metrics and annotators that compare a response with the references of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fgrl.base.errors import DataError
from fgrl.feedback.reference_scores import Labelled
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison
from fgrl.types import Sample


class Referenced(Labelled, Comparison):
    """`Comparison` of answers with their references, the best one of several (RLA, section 4.2.1).

    `numbers` and `about` only get answers that have a reference.
    """

    def counted(self, answers: Mapping[str, Sequence[Answer]]) -> Mapping[str, Sequence[Answer]]:
        """Return the answers that have a reference. Raises `DataError` if a prompt has no reference in the data."""
        for answer in (answer for own in answers.values() for answer in own):
            self._check(answer.id, answer.references)
        return {model: [answer for answer in own if self.usable(answer.references)] for model, own in answers.items()}

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` for a prompt without a reference."""
        for sample in samples:
            known = sample.reference
            self._check(sample.id, [known] if isinstance(known, str) else known or [])

    def _check(self, name: str, references: Sequence[str]) -> None:
        if not any(reference.strip() for reference in references):
            raise DataError(
                f"{self.called}: prompt {name!r} has no reference to compare with: name the column that holds it "
                "in the evaluation's reader (`columns: {reference: ...}`), or leave the metric out"
            )

    def best(self, answers: Sequence[Answer], score: Callable[[str, str], float]) -> list[float]:
        """Return the highest `score(response, reference)` of each answer."""
        return [
            max(score(answer.text, reference) for reference in self.usable(answer.references)) for answer in answers
        ]
