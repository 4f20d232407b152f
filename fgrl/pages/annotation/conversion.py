"""Facts about annotations that are stored beside the responses, and the part of annotations that the page and Label
Studio can represent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fgrl.base.errors import DataError
from fgrl.types import Annotation, PairVerdict, Sample, Span

KEY = "annotation"
"""Entry of a sample's `meta` with facts that annotations and verdicts have no field for."""


def is_mark(span: Span) -> bool:
    """Return True if the span can come from the annotation page: a like or a dislike that is not empty."""
    return span.label in (1.0, -1.0) and span.start < span.end


def verdict_by(sample: Sample, name: str) -> PairVerdict | None:
    """Return an annotator's first preference between the first two responses, or None if there is none."""
    own = (verdict for verdict in sample.verdicts or [] if verdict.by == name and verdict.verdict is not None)
    return next((verdict for verdict in own if {verdict.first, verdict.second} == {0, 1}), None)


def left_out(sample: Sample, names: Collection[str]) -> int:
    """Return the number of these annotators' annotations that neither the page nor Label Studio can represent: spans
    that are not marks, critiques, and verdicts other than `verdict_by`.
    """
    annotations = [one for response in sample.responses for one in response.annotations if one.by in names]
    verdicts = sum(verdict.by in names for verdict in sample.verdicts or [])
    return (
        sum(not is_mark(span) for one in annotations for span in one.spans)
        + sum(one.critique is not None for one in annotations)
        + verdicts - sum(verdict_by(sample, name) is not None for name in names)
    )  # fmt: skip


def about(sample: Sample) -> Mapping[str, Any]:
    """Return `meta.annotation` of a sample, or an empty mapping if it is missing or not a mapping."""
    own = sample.meta.get(KEY)
    return own if isinstance(own, Mapping) else {}


def by_annotator(sample: Sample) -> Mapping[str, Mapping[str, Any]]:
    """Return `order`, `seconds`, `done` and `at` of each annotator, as far as they are known."""
    own = about(sample).get("by")
    return own if isinstance(own, Mapping) else {}


def decisions(noted: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return an annotator's decisions on suggestions, from their entry in `by_annotator`."""
    own = noted.get("suggestions")
    return [one for one in own if isinstance(one, Mapping)] if isinstance(own, list) else []


def named_in(sample: Sample) -> list[str]:
    """Return the annotators of the sample's responses and verdicts, each once."""
    names = [annotation.by for response in sample.responses for annotation in response.annotations]
    return list(dict.fromkeys([*names, *(verdict.by for verdict in sample.verdicts or [])]))


def annotations_by(sample: Sample, name: str) -> dict[int, Annotation]:
    """Return an annotator's annotations by the place of the response. Raises `DataError` if a response has two."""
    own: dict[int, Annotation] = {}
    for place, response in enumerate(sample.responses):
        for annotation in response.annotations:
            if annotation.by == name and place in own:
                raise DataError(f"sample {sample.id}: {name!r} annotated response {place} twice; keep one annotation")
            if annotation.by == name:
                own[place] = annotation
    return own


def with_annotations(sample: Sample, annotations: Iterable[list[Annotation]], **changes: Any) -> Sample:
    """Return the sample with the given annotations of each response, and the given other changes."""
    responses = [
        response.model_copy(update={"annotations": own})
        for response, own in zip(sample.responses, annotations, strict=True)
    ]
    return sample.model_copy(update={"responses": responses, **changes})
