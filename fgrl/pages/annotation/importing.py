"""Import of annotated samples into a store: a first revision of each annotation, verdict and time.

If a sample's `meta.annotation.by` names its annotators, only their work is imported, and annotations of others stay
with the sample as part of the item; otherwise the work of all annotators is imported.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fgrl.base.errors import DataError
from fgrl.pages.annotation.conversion import (
    KEY,
    about,
    annotations_by,
    by_annotator,
    decisions,
    is_mark,
    left_out,
    named_in,
    verdict_by,
    with_annotations,
)
from fgrl.pages.annotation.revisions import ID, Kind, Revision, against
from fgrl.pages.annotation.store import Store, checked_name
from fgrl.types import Annotation, Sample

_NAMES = uuid.UUID("6f3c1d0e-6f43-4b8b-9d53-0c8e4d1a7a52")
"""Namespace of the ids of spans that have none."""


@dataclass
class Imported:
    """Result of an import."""

    items: int = 0
    """Samples with at least one revision."""
    revisions: int = 0
    """Revisions in the file."""
    added: int = 0
    """Number of these revisions that the store did not have."""
    skipped: int = 0
    """Spans, critiques and verdicts that the store cannot represent."""


def import_into(store: Store, samples: Iterable[Sample], *, now: datetime | None = None) -> Imported:
    """Add the annotations of these samples to a store, all of them or none.

    now: time of annotations without a time. Raises `DataError` for a sample that the store does not have or has with
    other responses, for an annotation that does not fit the sample or the settings of the page, and for an annotation
    that differs from the store's.
    """
    result = Imported()
    settings, moment = store.settings, (now or datetime.now(UTC)).isoformat()
    revisions: list[Revision] = []
    for sample in samples:
        known = store.sample(sample.id)
        if [response.text for response in known.responses] != [response.text for response in sample.responses]:
            raise DataError(f"sample {sample.id}: the store has it with other responses; import into another store")
        own = list(_revisions(sample, moment))
        for revision in own:
            if wrong := against(settings, revision.kind, revision.body, len(sample.responses)):
                raise DataError(
                    f"sample {sample.id}: {revision.kind} {revision.key} by {revision.annotator!r}: {wrong}"
                )
        result.items += bool(own)
        result.skipped += left_out(sample, annotators_of(sample))
        revisions += own
    result.revisions, result.added = len(revisions), store.add(revisions)
    return result


def annotators_of(sample: Sample) -> list[str]:
    """Return the annotators whose annotations of a sample are imported."""
    return list(by_annotator(sample)) or named_in(sample)


def without_annotations(sample: Sample) -> Sample:
    """Return the sample as it was before these annotators worked on it."""
    names, own = set(annotators_of(sample)), about(sample)
    verdicts = [verdict for verdict in sample.verdicts or [] if verdict.by not in names]
    meta = {key: value for key, value in sample.meta.items() if key != KEY or not isinstance(value, Mapping)}
    if "before" in own:
        meta = {key: own["before"] if key == KEY else value for key, value in sample.meta.items()}
    left = [[one for one in response.annotations if one.by not in names] for response in sample.responses]
    return with_annotations(sample, left, verdicts=verdicts or None, meta=meta)


def _revisions(sample: Sample, moment: str) -> Iterator[Revision]:
    """Yield a revision for every annotation, verdict, decision and time of the sample."""
    people = by_annotator(sample)
    for given in annotators_of(sample):
        noted = people.get(given, {})
        name = checked_name(given or "unknown")
        at = str(noted.get("at", moment))

        def revision(kind: Kind, key: str, body: dict[str, Any], name: str = name, at: str = at) -> Revision:
            return Revision(item=sample.id, annotator=name, kind=kind, key=key, version=1, time=at, body=body)

        if "order" in noted:
            yield revision("order", "", {"order": noted["order"]})
        seconds = noted.get("seconds")
        own = annotations_by(sample, given)
        taken: set[str] = set()
        for place, annotation in own.items():
            for key, body in _spans(sample, place, annotation, taken):
                yield revision("span", key, body)
            if annotation.answers:
                yield revision("answers", str(place), dict(annotation.answers))
            seconds = annotation.seconds if seconds is None else seconds
        if (verdict := verdict_by(sample, given)) is not None:
            better = {"first": verdict.first, "second": verdict.second, "tie": None}[str(verdict.verdict)]
            yield revision("verdict", "", {"better": better, "reason": verdict.reason or ""})
        for decided in decisions(noted):
            body = {"accepted": decided.get("accepted"), "span": decided.get("span")}
            yield revision("suggestion", str(decided.get("id")), body)
        if "cannot_judge" in noted:
            yield revision("cannot_judge", "", {"cannot": True, "comment": noted["cannot_judge"]})
        if seconds is not None:
            yield revision("time", "imported", {"seconds": float(seconds)})
        # done without an annotation of a response would mean that there was nothing to mark
        if noted.get("done", len(own) == len(sample.responses)):
            yield revision("done", "", {"done": True})


def _spans(sample: Sample, place: int, annotation: Annotation, taken: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield id and body of each span. taken: ids of this annotator's spans of the sample, which are unique in a store."""
    text = sample.responses[place].text
    for number, span in enumerate(annotation.spans):
        if not is_mark(span):
            continue
        key = uuid.uuid5(_NAMES, json.dumps([sample.id, annotation.by, place, number, span.id])).hex
        if span.id is not None and ID.fullmatch(span.id) and span.id not in taken:
            key = span.id
        taken.add(key)
        yield (
            key,
            {
                "place": place,
                "start": span.start,
                "end": span.end,
                "quote": text[span.start : span.end],
                "label": int(span.label),
                "reasons": list(span.reasons),
                "note": span.note or "",
                "deleted": False,
            },
        )
