"""Annotated samples into a store: revisions as they were exported, or a first revision of each annotation.

A file with revisions (`exported(..., revisions=True)`) gives back every revision with its version and time. From any
other file the annotations, verdicts and times become revisions of version 1. Where a sample's `meta.annotation.by`
names its annotators, what others have annotated stays with the sample, as something that the store is about; else
everybody's work is imported.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fgrl.base.errors import DataError
from fgrl.feedback.page_settings import PageSettings
from fgrl.pages.annotation.conversion import KEY, NotKept, about, annotations_by, by_annotator, decisions, named_in
from fgrl.pages.annotation.revisions import ID, ItemState, Kind, Revision, in_words
from fgrl.pages.annotation.store import Store, checked_name
from fgrl.types import Annotation, PairVerdict, Sample

_NAMES = uuid.UUID("6f3c1d0e-6f43-4b8b-9d53-0c8e4d1a7a52")
"""Namespace of the ids of spans that have none."""


@dataclass
class Imported:
    """What came of an import."""

    items: int = 0
    """Samples with at least one revision."""
    revisions: int = 0
    """Revisions in the file."""
    added: int = 0
    """Of these, how many the store did not have."""
    not_kept: NotKept = field(default_factory=NotKept)
    """What the store has no place for."""


def settings_of(samples: Sequence[Sample]) -> PageSettings | None:
    """Return the settings of the page that a file with revisions contains; None for any other file."""
    own = _store_of(samples).get("settings")
    return None if own is None else PageSettings.model_validate_json(json.dumps(own))


def create_store(path: Path, samples: Sequence[Sample], settings: PageSettings) -> Store:
    """Return a new store for annotated samples, with the annotators and the distribution of items of the store that
    they were exported from, as far as the file knows them. Nothing is imported yet. Raises `DataError` as
    `Store.create` does.
    """
    own = _store_of(samples)
    return Store.create(
        path,
        [without_annotations(sample) for sample in samples],
        settings,
        own.get("annotators", ()),
        int(own.get("overlap", 0)),
        each=int(own.get("each", 1)),
        seed=int(own.get("seed", 0)),
    )


def import_into(store: Store, samples: Iterable[Sample], *, now: datetime | None = None) -> Imported:
    """Add the annotations of these samples to a store, all of them or none.

    now: the time of annotations that have none. Raises `DataError` for a sample that the store does not have or has
    with other responses, and for an annotation that does not fit the sample or the settings of the page.
    """
    result = Imported()
    settings, moment = store.settings, (now or datetime.now(UTC)).isoformat()
    revisions: list[Revision] = []
    for sample in samples:
        _check_sample(store, sample)
        stored = "revisions" in about(sample)
        own = _stored(sample) if stored else list(_first(sample, moment, result.not_kept))
        for revision in () if stored else own:  # what was stored under earlier settings stays valid
            if wrong := _wrong(revision, settings, len(sample.responses)):
                raise DataError(
                    f"sample {sample.id}: {revision.kind} {revision.key} by {revision.annotator!r}: {wrong}"
                )
        result.items += bool(own)
        result.revisions += len(own)
        revisions += own if stored else _new(store, sample.id, own, result.not_kept)
    result.added = store.restore(revisions)
    return result


def annotators_of(sample: Sample) -> list[str]:
    """Whose annotations of a sample are imported."""
    if "revisions" in about(sample):
        return list(dict.fromkeys(revision.annotator for revision in _stored(sample)))
    if people := by_annotator(sample):
        return list(people)
    return named_in(sample)


def without_annotations(sample: Sample) -> Sample:
    """Return the sample as it was before these annotators worked on it."""
    names, own = set(annotators_of(sample)), about(sample)
    verdicts = [verdict for verdict in sample.verdicts or [] if verdict.by not in names]
    meta = {key: value for key, value in sample.meta.items() if key != KEY or not isinstance(value, Mapping)}
    if "before" in own:
        meta = {key: own["before"] if key == KEY else value for key, value in sample.meta.items()}
    return sample.model_copy(
        update={
            "responses": [
                response.model_copy(
                    update={"annotations": [one for one in response.annotations if one.by not in names]}
                )
                for response in sample.responses
            ],
            "verdicts": verdicts or None,
            "meta": meta,
        }
    )


def _store_of(samples: Sequence[Sample]) -> Mapping[str, Any]:
    own = about(samples[0]).get("store") if samples else None
    return own if isinstance(own, Mapping) else {}


def _check_sample(store: Store, sample: Sample) -> None:
    known = store.sample(sample.id)
    if [response.text for response in known.responses] != [response.text for response in sample.responses]:
        raise DataError(f"sample {sample.id}: the store has it with other responses; import into another store")


def _new(store: Store, item: str, first: Sequence[Revision], not_kept: NotKept) -> Iterator[Revision]:
    """Those first revisions of an item that the store does not have. What it has differently is a `DataError`, except
    for orders and times, of which the store keeps its own.
    """
    states = {name: store.state(item, name) for name in {own.annotator for own in first} & set(store.annotators)}
    for revision in first:
        state = states.get(revision.annotator)
        if state is None:
            yield revision
            continue
        newest, same = _newest(state, revision)
        if newest is None:
            yield revision
        elif same:
            continue
        elif revision.kind in ("order", "time"):
            not_kept.add(f"{revision.kind}s, of which the store has its own")
        else:
            raise DataError(
                f"sample {item}: {revision.kind} {revision.key} by {revision.annotator!r}: the store has another version of it; "
                "import into another store"
            )


def _newest(state: ItemState, revision: Revision) -> tuple[Any, bool]:
    """Return the store's version of the same thing (None: it has none), and whether it is the same."""
    match revision.kind:
        case "order":
            return state.order, state.order == revision.body["order"]
        case "time":
            return state.seconds, state.seconds == revision.body["seconds"]
        case "done":
            return state.done or None, True
        case "span":
            known = state.spans.get(revision.key)
        case "answers":
            known = state.answers.get(int(revision.key))
        case "verdict":
            known = state.last_verdict
        case "suggestion":
            # of an accepted one whose span was deleted a file without revisions says that it was rejected
            return state.suggestions.get(revision.key), state.accepts(revision.key) == revision.body["accepted"]
        case "cannot_judge":
            known = state.cannot_judge
    return known, known is not None and known.body == revision.body


def _stored(sample: Sample) -> list[Revision]:
    """Return the revisions of a complete copy. Raises `DataError` where they are none."""
    given, where = about(sample)["revisions"], f"sample {sample.id}: meta.{KEY}.revisions"
    if not isinstance(given, list):
        raise DataError(
            f"{where}: wants a list of revisions, got {json.dumps(given)[:40]}; export with --revisions again"
        )
    revisions = []
    for number, own in enumerate(given):
        if not isinstance(own, Mapping):
            raise DataError(f"{where}[{number}]: wants a revision, got {json.dumps(own)[:40]}")
        try:
            revisions.append(Revision.model_validate({**own, "item": sample.id}))
        except ValidationError as error:
            raise DataError(f"{where}[{number}]: {in_words(error)}") from None
    return revisions


def _first(sample: Sample, moment: str, not_kept: NotKept) -> Iterator[Revision]:
    """Yield a revision for everything that was annotated, without its history."""
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
            for key, body in _spans(sample, place, annotation, taken, not_kept):
                yield revision("span", key, body)
            if annotation.answers:
                yield revision("answers", str(place), dict(annotation.answers))
            not_kept.add("critiques", annotation.critique is not None)
            seconds = annotation.seconds if seconds is None else seconds
        for verdict in _verdicts(sample, given, not_kept):
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


def _spans(
    sample: Sample, place: int, annotation: Annotation, taken: set[str], not_kept: NotKept
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Id and body of each span. taken: ids of this annotator's spans of the sample, which are unique in a store."""
    text = sample.responses[place].text
    for number, span in enumerate(annotation.spans):
        if not not_kept.marks(span):
            continue
        usable = span.id is not None and ID.fullmatch(span.id) and span.id not in taken
        not_kept.add("ids of spans, which were replaced", span.id is not None and not usable)
        name = uuid.uuid5(_NAMES, json.dumps([sample.id, annotation.by, place, number, span.id])).hex
        key = str(span.id) if usable else name
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


def _verdicts(sample: Sample, name: str, not_kept: NotKept) -> list[PairVerdict]:
    own = [verdict for verdict in sample.verdicts or [] if verdict.by == name]
    decided = [verdict for verdict in own if verdict.verdict is not None]
    not_kept.add("missing verdicts", len(own) - len(decided))
    not_kept.add("further verdicts on the same sample", len(decided[1:]))
    for verdict in decided[:1]:
        not_kept.add("probabilities and agreements of verdicts", verdict.p is not None or verdict.agree is not None)
    return decided[:1]


def _wrong(revision: Revision, settings: PageSettings, places: int) -> str | None:
    """Return what the settings of the page do not allow; what does not fit the sample the store itself refuses."""
    body = revision.body
    try:
        match revision.kind:
            case "span":
                return settings.wrong_span(body["label"], body["reasons"], body["note"])
            case "answers":
                return settings.wrong_answers(body)
            case "verdict":
                return settings.wrong_verdict(body["better"], body["reason"], places)
    except KeyError as missing:
        return f"{missing.args[0]}: missing"
    return None
