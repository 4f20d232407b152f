"""Spans suggested by a model or a rule, from the annotations that a sample already has when it comes to the page."""

from __future__ import annotations

from dataclasses import dataclass

from fgrl.types import Sample, Span


@dataclass(frozen=True)
class Suggestion:
    """A span marked by another annotator."""

    place: int
    """Place of the response."""
    by: str
    """The model or the rule that marked it."""
    span: Span

    @property
    def label(self) -> int:
        """1 for a good passage, -1 for any other."""
        return 1 if self.span.label > 0 else -1


def suggested(sample: Sample) -> dict[str, Suggestion]:
    """Return the suggested spans of a sample by their keys, `PLACE.ANNOTATION.SPAN`, where each number counts from 0.
    Spans that are empty or have the label 0 suggest nothing.
    """
    return {
        f"{place}.{number}.{index}": Suggestion(place, annotation.by, span)
        for place, response in enumerate(sample.responses)
        for number, annotation in enumerate(response.annotations)
        for index, span in enumerate(annotation.spans)
        if span.label and span.end > span.start
    }
