"""What every conversion of annotations reports, and what is stored about them beside the responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fgrl.base.errors import DataError
from fgrl.types import Annotation, Sample, Span

KEY = "annotation"
"""Entry of a sample's `meta` that holds what has no place in annotations and verdicts."""


@dataclass
class NotKept:
    """What a conversion could not keep: how often, by a phrase that says what it is."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, count: int = 1) -> None:
        """Nothing for a count of 0."""
        if count:
            self.counts[what] += count

    def marks(self, span: Span) -> bool:
        """Is it a span of the annotation page: a like or a dislike that is not empty? What is lost of it is counted."""
        if span.label not in (1.0, -1.0):
            self.add("spans with another label than +1 or -1")
            return False
        if span.start == span.end:
            self.add("empty spans")
            return False
        self.add("weights of spans", span.weight != 1)
        self.add("places of responses that address a span", span.answered_by is not None)
        return True

    def __str__(self) -> str:
        """One line; empty when everything was kept."""
        return ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))


def about(sample: Sample) -> Mapping[str, Any]:
    """Return `meta.annotation` of a sample; empty where it is missing or something else."""
    own = sample.meta.get(KEY)
    return own if isinstance(own, Mapping) else {}


def by_annotator(sample: Sample) -> Mapping[str, Mapping[str, Any]]:
    """`order`, `seconds`, `done` and `at` of each annotator, as far as they are known."""
    own = about(sample).get("by")
    return own if isinstance(own, Mapping) else {}


def decisions(noted: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what an annotator decided about suggestions, from their entry in `by_annotator`."""
    own = noted.get("suggestions")
    return [one for one in own if isinstance(one, Mapping)] if isinstance(own, list) else []


def named_in(sample: Sample) -> list[str]:
    """Return the annotators of its responses and of its verdicts, each once."""
    names = [annotation.by for response in sample.responses for annotation in response.annotations]
    return list(dict.fromkeys([*names, *(verdict.by for verdict in sample.verdicts or [])]))


def annotations_by(sample: Sample, name: str) -> dict[int, Annotation]:
    """Return an annotator's annotations by the place of the response. Raises `DataError` for two of one response."""
    own: dict[int, Annotation] = {}
    for place, response in enumerate(sample.responses):
        for annotation in response.annotations:
            if annotation.by == name and place in own:
                raise DataError(f"sample {sample.id}: {name!r} annotated response {place} twice; keep one annotation")
            if annotation.by == name:
                own[place] = annotation
    return own
