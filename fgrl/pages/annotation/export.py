"""Export of a store as samples: annotations, verdicts, and facts that these have no field for.

`meta.annotation` of an exported sample has the entries

- `page`: `modes` of the page's settings
- `by`: for each annotator, `order` (places of the responses from left to right), `seconds` (active time), `done`, `at`
  (time of the last change, ISO 8601), `cannot_judge` (the reason why the annotator cannot judge the item, which then
  has no verdict), and `suggestions` (for each decided suggestion `id`, `by`, `place`, `start`, `end`, `label`,
  `accepted`, and `span`, the id of the annotator's own span that was created from it)
- `before`: the value that the sample had under this key before it was annotated, if any

Not exported: earlier versions of changed annotations, the annotators' tokens and leases, and settings of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from fgrl.feedback.page_settings import PageSettings
from fgrl.feedback.suggestions import suggested
from fgrl.pages.annotation.conversion import KEY, with_annotations
from fgrl.pages.annotation.revisions import ItemState, Revision, state_of
from fgrl.pages.annotation.store import Store, shown_places
from fgrl.types import Annotation, PairVerdict, Sample, Span


def exported(store: Store, *, finished: bool = False) -> Iterator[Sample]:
    """Yield every sample of a store with its annotations, in the order of the store.

    Annotators are in the order of their names, spans in the order in which they were first saved. finished: include
    only work that annotators have marked as done. Changes that are saved during the export are left out of every
    sample.
    """
    settings = store.settings
    by_item: dict[str, list[Revision]] = {item: [] for item in store.items}
    for revision in store.revisions():
        by_item[revision.item].append(revision)
    for item, stored in by_item.items():
        names = sorted({revision.annotator for revision in stored})
        states = {name: state_of(revision for revision in stored if revision.annotator == name) for name in names}
        if finished:
            states = {name: state for name, state in states.items() if state.done}
        yield _annotated(store.sample(item), states, settings)


def _annotated(sample: Sample, states: Mapping[str, ItemState], settings: PageSettings) -> Sample:
    if not states:
        return sample
    shown = shown_places(sample, settings)
    annotations = [list(response.annotations) for response in sample.responses]
    verdicts = list(sample.verdicts or [])
    people: dict[str, dict[str, Any]] = {}
    for name, state in states.items():
        for place in shown:
            if (own := _annotation(name, state, place, settings)) is not None:
                seconds = state.seconds if len(shown) == 1 else None
                annotations[place].append(own.model_copy(update={"seconds": seconds}))
        if state.verdict is not None and state.unjudged is None:
            verdicts.append(_verdict(name, state.verdict.body, shown))
        known = {
            "order": state.order, "seconds": state.seconds, "done": state.done, "at": state.at,
            "cannot_judge": state.unjudged, "suggestions": _decided(sample, state) or None,
        }  # fmt: skip
        people[name] = {key: value for key, value in known.items() if value is not None}
    before = {"before": sample.meta[KEY]} if KEY in sample.meta else {}
    about = before | {"page": settings.modes.model_dump(mode="json"), "by": people}
    return with_annotations(sample, annotations, verdicts=verdicts or sample.verdicts, meta=sample.meta | {KEY: about})


def _decided(sample: Sample, state: ItemState) -> list[dict[str, Any]]:
    """Return an annotator's decisions on the suggestions of a sample, in the order of the suggestions."""
    decided = []
    for key, own in suggested(sample).items():
        if (accepted := state.accepts(key)) is not None:
            about = {"id": key, "by": own.by, "place": own.place, "start": own.span.start, "end": own.span.end}
            mine = {"span": state.suggestions[key].body["span"]} if accepted else {}
            decided.append({**about, "label": own.label, "accepted": accepted, **mine})
    return decided


def _annotation(name: str, state: ItemState, place: int, settings: PageSettings) -> Annotation | None:
    """Return the annotation of a response, or None if there is no annotation. An annotation without spans differs from
    None: it says that nothing is to be marked, which is known only of an item that the annotator has finished, on a
    page that marks spans.
    """
    spans = _merged(
        Span(
            start=span.body["start"],
            end=span.body["end"],
            label=float(span.body["label"]),
            reasons=list(span.body["reasons"]),
            note=span.body["note"] or None,
            id=span.key,
        )
        for span in state.live_spans.values()
        if span.body["place"] == place
    )
    answers = dict(state.answers[place].body) if place in state.answers else {}
    if spans or answers or (state.done and state.unjudged is None and settings.modes.spans != "none"):
        return Annotation(by=name, spans=spans, answers=answers)
    return None


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return one span for each passage and label, with all reasons and notes: an imported file may have identical
    spans.
    """
    merged: dict[tuple[int, int, float], Span] = {}
    for span in spans:
        passage = (span.start, span.end, span.label)
        if passage not in merged:
            merged[passage] = span
            continue
        first = merged[passage]
        reasons = list(dict.fromkeys([*first.reasons, *span.reasons]))
        notes = list(dict.fromkeys(note for note in (first.note, span.note) if note))
        merged[passage] = first.model_copy(update={"reasons": reasons, "note": "\n".join(notes) or None})
    return list(merged.values())


def _verdict(name: str, body: Mapping[str, Any], shown: list[int]) -> PairVerdict:
    first, second = sorted(shown)
    better = body["better"]
    verdict: Literal["first", "second", "tie"] = "tie" if better is None else "first" if better == first else "second"
    return PairVerdict(first=first, second=second, verdict=verdict, reason=body["reason"] or None, by=name)
