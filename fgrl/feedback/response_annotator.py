"""Common parts of annotators that add an annotation to responses: which responses they annotate, and how a sample gets
the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fgrl.kinds import Annotator, Expected
from fgrl.registry import name_of
from fgrl.types import Annotation, Response, Sample

MATCHES = "matches"
"""Key in a response's `meta` that records how each quote of an annotation was found, by the name of the annotator."""


@dataclass(frozen=True)
class ResponseCase:
    """A response of a sample."""

    owner: int
    """Place of the sample among the samples that were given."""
    place: int
    """Place of the response among the sample's responses."""
    sample: Sample

    @property
    def response(self) -> Response:
        return self.sample.responses[self.place]

    def alone(self) -> Sample:
        """Return the sample with this response as its only one."""
        return self.sample.only_with(self.response)


class NamedAnnotator(Annotator):
    """Annotator that adds annotations to responses under a name, and keeps everything else unchanged."""

    by: str | None = None
    """Name of the annotations, by which later stages select them; null uses the annotator's own name."""

    @property
    def annotator_name(self) -> str:
        return name_of(self)[1] if self.by is None else self.by


class ResponseAnnotator(NamedAnnotator):
    """Annotator of the chosen response of each sample, or of every response."""

    responses: Literal["chosen", "all"] = "chosen"
    """Responses to annotate: the chosen response of a sample (or its only one), or every response."""

    def response_cases(self, samples: Sequence[Sample]) -> tuple[list[ResponseCase], dict[str, int]]:
        """Return the responses to annotate, in order, and counts of samples `without a response` and of `empty
        responses`, which have nothing to annotate. Raises `DataError` if only the chosen response is to be annotated,
        and a sample has several responses but none chosen.
        """
        cases: list[ResponseCase] = []
        skipped = {"without a response": 0, "empty responses": 0}
        for owner, sample in enumerate(samples):
            every = [ResponseCase(owner, place, sample) for place in self._places(sample)]
            full = [case for case in every if case.response.text.strip()]
            skipped["without a response"] += not every
            skipped["empty responses"] += len(every) - len(full)
            cases += full
        return cases, {name: count for name, count in skipped.items() if count}

    def _places(self, sample: Sample) -> Sequence[int]:
        if self.responses == "all":
            return range(len(sample.responses))
        if sample.chosen_response is None:
            return ()
        return (0 if sample.chosen is None else sample.chosen,)

    def asks_at_most(self, expected: Expected) -> int | None:
        """Return the number of responses to annotate, one question each; None if it is unknown."""
        if self.responses == "chosen":
            return expected.samples
        return None if expected.responses is None else expected.samples * expected.responses


def annotated(response: Response, annotation: Annotation, **meta: Any) -> Response:
    """Return a copy of the response with one more annotation, which replaces an earlier one by the same annotator;
    `meta` is added.
    """
    others = [other for other in response.annotations if other.by != annotation.by]
    return response.model_copy(
        update={"annotations": [*others, annotation], "meta": {**response.meta, **meta}},
    )


def with_responses(samples: Sequence[Sample], changed: Mapping[tuple[int, int], Response]) -> list[Sample]:
    """Return copies of the samples in which some responses, by `(owner, place)`, are replaced."""
    return [
        sample.model_copy(
            update={
                "responses": [changed.get((owner, place), response) for place, response in enumerate(sample.responses)]
            }
        )
        for owner, sample in enumerate(samples)
    ]


def with_matches(response: Response, by: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `meta` entry that holds how the quotes of an annotation were found, next to the entries of other
    annotators.
    """
    return {MATCHES: {**response.meta.get(MATCHES, {}), by: list(records)}}
