"""What is stored about annotations beside the responses, and what a page and Label Studio can hold of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fgrl.base.errors import DataError
from fgrl.types import Annotation, PairVerdict, Sample, Span

KEY = "annotation"
"""Entry of a sample's `meta` that holds what has no place in annotations and verdicts."""


def is_mark(span: Span) -> bool:
    """Return True if it is a span of the annotation page: a like or a dislike that is not empty."""
    return span.label in (1.0, -1.0) and span.start < span.end


def verdict_by(sample: Sample, name: str) -> PairVerdict | None:
    """Return an annotator's first preference between the first two responses; None: there is none."""
    own = (verdict for verdict in sample.verdicts or [] if verdict.by == name and verdict.verdict is not None)
    return next((verdict for verdict in own if {verdict.first, verdict.second} == {0, 1}), None)


def left_out(sample: Sample, names: Collection[str]) -> int:
    """Return how much of these annotators' work neither the page nor Label Studio can hold: spans that are no marks,
    critiques, and other verdicts than `verdict_by`.
    """
    annotations = [one for response in sample.responses for one in response.annotations if one.by in names]
    verdicts = sum(verdict.by in names for verdict in sample.verdicts or [])
    return (
        sum(not is_mark(span) for one in annotations for span in one.spans)
        + sum(one.critique is not None for one in annotations)
        + verdicts - sum(verdict_by(sample, name) is not None for name in names)
    )  # fmt: skip


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


def with_annotations(sample: Sample, annotations: Iterable[list[Annotation]], **changes: Any) -> Sample:
    """Return the sample with other annotations of each response, and other changes."""
    responses = [
        response.model_copy(update={"annotations": own})
        for response, own in zip(sample.responses, annotations, strict=True)
    ]
    return sample.model_copy(update={"responses": responses, **changes})
