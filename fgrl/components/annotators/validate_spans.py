"""Validation of annotations before training on them (Text2Grad, appendix M.1: offline span validation)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.feedback.quotes import KINDS, Kind, locate
from fgrl.feedback.response_annotator import MATCHES, ResponseCase, with_responses
from fgrl.kinds import Annotator, Expected, stated
from fgrl.registry import name_of, register
from fgrl.types import Annotation, Request, Response, Sample, Span

LOST = "quote not found"
ROUNDING = 1e-3
"""Tolerance for the rounding of a recorded score."""


@register("validate_spans")
class ValidateSpans(Annotator):
    """Checks the spans of annotations, and drops or replaces flawed ones.

    A span is flawed if it is blank or wider than `widest`. It is also flawed if `meta.matches` of its response, where
    annotators record their quotes, contains no quote for it, a quote that no longer matches the text there, or a quote
    with a looser match than `kind`. A quote that was not found is a flaw of its annotation. Annotations without such a
    record (of people who marked in the text itself) are checked for blank and broad spans.
    """

    version = 2

    action: Literal["drop_span", "drop_response", "reannotate"]
    """Treatment of flaws: drop the flawed spans; drop responses with a flawed annotation; or have `annotator` annotate
    these responses again (spans that are still flawed are then dropped).
    """
    annotator: Annotator | None = None
    """Annotator for the second annotation. Use the settings of the first annotator with another `draw`, because its
    answers are cached.
    """
    by: str | None = None
    """Author whose annotations are checked, a person or a model; null checks all."""
    widest: float | None = Field(None, gt=0, le=1)
    """Maximum share of the response's characters that a span may cover; null allows any."""
    kind: Kind = "fuzzy"
    """Loosest kind of match of a quote that is accepted: `exact`, `normalised` or `fuzzy`."""

    @model_validator(mode="after")
    def _annotator_for_reannotating(self) -> ValidateSpans:
        if (self.action == "reannotate") != (self.annotator is not None):
            raise ValueError("annotator: goes with `action: reannotate`, e.g. {name: dual_feedback, draw: 1, ...}")
        return self

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the checked samples. Counts: the numbers of checked `annotations` and `spans`; flaws by kind; `flawed
        responses`; and the dropped or repeated annotations, with the counts of `annotator`.
        """
        every = [annotation for sample in samples for one in sample.responses for annotation in self._own(one)]
        flaws = Counter(
            flaw
            for sample in samples
            for one in sample.responses
            for annotation in self._own(one)
            for flaw in self.flaws(one, annotation)
        )
        flawed = self.flawed(samples)
        self._counted = {
            "annotations": len(every),
            "spans": sum(len(annotation.spans) for annotation in every),
            **{f"flaw: {name}": count for name, count in sorted(flaws.items())},
            "flawed responses": len(flawed),
        }
        if self.action == "drop_response":
            return self._without_responses(samples, flawed)
        if self.action == "reannotate":
            samples = self._again(samples, flawed)
        return self._without_spans(samples)

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        if self.annotator is None:
            return []
        return self.annotator.asks([self._stripped(case) for case in self.flawed(given)])

    def asks_at_most(self, expected: Expected) -> Any:
        """Return the upper bound for a stage that has not run, as if everything were flawed."""
        if self.annotator is None:
            return 0
        responses = expected.responses
        return (
            None
            if responses is None
            else stated(self.annotator, "asks_at_most", Expected(expected.samples * responses, 1))
        )

    # -- flaws ---------------------------------------------------------------------------------------------------------

    def flaws(self, response: Response, annotation: Annotation) -> Iterator[str]:
        """Yield the name of each flaw of an annotation."""
        yield from filter(None, (self.flaw(response, annotation, span) for span in annotation.spans))
        yield from (LOST for record in _records(response, annotation) or () if record["kind"] is None)

    def flaw(self, response: Response, annotation: Annotation, span: Span) -> str | None:
        """Return the first flaw of a span; None if it has no flaw."""
        passage = response.text[span.start : span.end]
        if not passage.strip():
            return "blank"
        if self.widest is not None and len(passage) > self.widest * len(response.text):
            return "too broad"
        records = _records(response, annotation)
        if records is None:
            return None
        own = [record for record in records if (record.get("start"), record.get("end")) == (span.start, span.end)]
        if not own:
            return "without a quote"
        if not any(_matches(record, passage) for record in own):
            return "differs from its quote"
        if all(KINDS.index(record["kind"]) > KINDS.index(self.kind) for record in own):
            return "matched too loosely"
        return None

    def flawed(self, samples: Sequence[Sample]) -> list[ResponseCase]:
        """Return the responses with a flaw, in order."""
        return [
            ResponseCase(owner, place, sample)
            for owner, sample in enumerate(samples)
            for place, response in enumerate(sample.responses)
            if self._flawed(response)
        ]

    def _flawed(self, response: Response) -> list[Annotation]:
        return [annotation for annotation in self._own(response) if any(self.flaws(response, annotation))]

    def _own(self, response: Response) -> list[Annotation]:
        return [annotation for annotation in response.annotations if self.by in (None, annotation.by)]

    # -- actions -------------------------------------------------------------------------------------------------------

    def _without_spans(self, samples: Sequence[Sample]) -> list[Sample]:
        changed: dict[tuple[int, int], Response] = {}
        dropped = 0
        for case in self.flawed(samples):
            annotations = []
            for annotation in case.response.annotations:
                sound = [
                    span
                    for span in annotation.spans
                    if self.by not in (None, annotation.by) or self.flaw(case.response, annotation, span) is None
                ]
                dropped += len(annotation.spans) - len(sound)
                annotations.append(annotation.model_copy(update={"spans": sound}))
            changed[case.owner, case.place] = case.response.model_copy(update={"annotations": annotations})
        self._counted["dropped spans"] = dropped
        return with_responses(samples, changed)

    def _without_responses(self, samples: Sequence[Sample], flawed: Sequence[ResponseCase]) -> list[Sample]:
        places: dict[int, set[int]] = {}
        for case in flawed:
            places.setdefault(case.owner, set()).add(case.place)
        kept = [_without(sample, places[owner]) if owner in places else sample for owner, sample in enumerate(samples)]
        self._counted["dropped responses"] = len(flawed)
        self._counted["dropped samples"] = sum(sample is None for sample in kept)
        return [sample for sample in kept if sample is not None]

    def _again(self, samples: Sequence[Sample], flawed: Sequence[ResponseCase]) -> list[Sample]:
        assert self.annotator is not None
        again = self.annotator.annotate([self._stripped(case) for case in flawed]) if flawed else []
        if len(again) != len(flawed):
            raise DataError(
                f"annotator: {name_of(self.annotator)[1]} dropped {len(flawed) - len(again)} of {len(flawed)} samples, so "
                "its annotations cannot be matched to the responses: use one that keeps every sample"
            )
        renewed = {(case.owner, case.place): sample.responses[0] for case, sample in zip(flawed, again, strict=True)}
        lost = sum(len(renewed[case.owner, case.place].annotations) < len(case.response.annotations) for case in flawed)
        self._counted |= {
            "annotated again": len(flawed) - lost,
            **({f"again: {name}": count for name, count in self.annotator.counts().items()} if flawed else {}),
        }
        return with_responses(samples, renewed)

    def _stripped(self, case: ResponseCase) -> Sample:
        """Return the sample with only this response, without its flawed annotations and the record of their quotes."""
        names = {annotation.by for annotation in self._flawed(case.response)}
        others = [one for one in case.response.annotations if one.by not in names]
        matches = {name: own for name, own in case.response.meta.get(MATCHES, {}).items() if name not in names}
        meta = {name: value for name, value in case.response.meta.items() if name != MATCHES}
        meta |= {MATCHES: matches} if matches else {}
        return case.sample.only_with(case.response.model_copy(update={"annotations": others, "meta": meta}))


def _records(response: Response, annotation: Annotation) -> list[dict[str, Any]] | None:
    """Return the record of the annotation's quotes; None if there is no record."""
    found: list[dict[str, Any]] | None = response.meta.get(MATCHES, {}).get(annotation.by)
    return found


def _matches(record: dict[str, Any], passage: str) -> bool:
    """Return True if the passage still matches the record of its quote."""
    quote, kind = record["quote"], record["kind"]
    if kind == "exact":
        return bool(quote == passage)
    if kind == "fuzzy":
        return bool(locate(quote, passage, fuzzy=max(record["score"] - ROUNDING, ROUNDING), ignore_case=True))
    places = locate(quote, passage, ignore_case=True)
    return any((place.start, place.end) == (0, len(passage)) for place in places)


def _without(sample: Sample, places: set[int]) -> Sample | None:
    """Return the sample without some responses, with adjusted references to the others; None if no response remains.

    A sample that loses its chosen response has no chosen response: the others may still train a critic.
    """
    stay = [place for place in range(len(sample.responses)) if place not in places]
    if not stay:
        return None
    moved = {before: after for after, before in enumerate(stay)}
    verdicts = sample.verdicts and [
        verdict.model_copy(update={"first": moved[verdict.first], "second": moved[verdict.second]})
        for verdict in sample.verdicts
        if verdict.first in moved and verdict.second in moved
    ]
    return sample.model_copy(
        update={
            "responses": [_moved(sample.responses[place], moved) for place in stay],
            "chosen": None if sample.chosen is None else moved.get(sample.chosen),
            "verdicts": verdicts,
        }
    )


def _moved(response: Response, moved: dict[int, int]) -> Response:
    annotations = [
        annotation.model_copy(
            update={
                "spans": [
                    span
                    if span.answered_by is None
                    else span.model_copy(update={"answered_by": moved.get(span.answered_by)})
                    for span in annotation.spans
                ]
            }
        )
        for annotation in response.annotations
    ]
    return response.model_copy(update={"annotations": annotations})
