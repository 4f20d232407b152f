"""Label Studio's task format: conversion of samples with annotations to tasks and back, and a matching labeling
configuration.

A task holds the texts in `data` (`query`, `document`, `response_1`, ...), the whole sample without its annotations as
`data.sample`, and one annotation per annotator. `annotations[].result` is a flat list with entries of these kinds
(type; from_name; value):

- a span: labels; span_1; start, end, text, labels: [like] or [dislike]
- its reasons: choices; like_1, dislike_1; the same start and end, choices: ids; with the span's id
- its note: textarea; note_1; the same start and end, text: [note]; with the span's id
- an answer: choices, textarea or rating; question_1_ID; choices, text or rating
- the preference: pairwise; preference; selected: left (the first response) or right
- a tie: choices; tie; choices: [tie], since Pairwise has no third choice
- the reason for the preference: textarea; preference_reason; text: [reason]
- the annotator: textarea; annotator; text: [name], since Label Studio accepts as `completed_by` only users that it knows

The numbers in names are places of responses, counted from 1; `start` and `end` are code points. Label Studio has no
field for other facts about a sample's annotations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.feedback.page_settings import OTHER, PageModes, PageSettings
from fgrl.feedback.templates import as_text
from fgrl.pages.annotation.conversion import (
    KEY,
    annotations_by,
    by_annotator,
    is_mark,
    left_out,
    named_in,
    verdict_by,
    with_annotations,
)
from fgrl.pages.annotation.revisions import in_words
from fgrl.types import Annotation, PairVerdict, Response, Sample, Span

jinja2 = lazy.load("jinja2")

TEMPLATE = Path(__file__).with_name("label_studio.xml.j2")
"""Template of the labeling configuration of a project."""
ADDED_ID = re.compile(r"fgrl-\d+-\d+")
"""Ids of regions of spans that have no separate id."""
LABELS = {"like": 1.0, "dislike": -1.0}
HIGHEST_RATING = 10
_WHITE = re.compile(r"\s+|\\n")


# ----- tasks ----------------------------------------------------------------------------------------------------------


def to_tasks(
    samples: Iterable[Sample], *, document: str = "document", query: str = "question"
) -> tuple[list[dict[str, Any]], int]:
    """Return one task per sample, and the number of spans, answers, critiques and verdicts that Label Studio cannot
    represent.

    document: entry of a sample's `meta` with the knowledge source. query: entry with the query, if the prompt has more
    than the query. Raises `DataError` for an annotator who annotated a response twice.
    """
    tasks, skipped = [], 0
    for sample in samples:
        tasks.append(_task(sample, document, query))
        annotations = [one for response in sample.responses for one in response.annotations]
        skipped += left_out(sample, named_in(sample))
        skipped += sum(_kind_of(answer) is None for one in annotations for answer in one.answers.values())
    return tasks, skipped


def _task(sample: Sample, document: str, query: str) -> dict[str, Any]:
    meta = {key: value for key, value in sample.meta.items() if key != KEY}
    bare = with_annotations(sample, [[] for _ in sample.responses], verdicts=None, meta=meta)
    shown = sample.meta.get(query)
    shown = shown if isinstance(shown, str) and shown.strip() else as_text(sample.prompt)
    data = {"query": shown, "document": str(sample.meta.get(document, ""))}
    data |= {f"response_{place}": response.text for place, response in enumerate(sample.responses, start=1)}
    annotations = []
    for name in named_in(sample):
        own = annotations_by(sample, name)
        result = [*_of_responses(sample, own), *_of_verdict(verdict_by(sample, name))]
        if name:
            result.append(_result("annotator", "response_1", "textarea", {"text": [name]}))
        known = (one.seconds for one in own.values() if one.seconds is not None)
        seconds = by_annotator(sample).get(name, {}).get("seconds", next(known, None))
        annotations.append({"result": result} | ({} if seconds is None else {"lead_time": seconds}))
    return {"data": data | {"sample": bare.model_dump(mode="json", exclude_defaults=True)}, "annotations": annotations}


def _result(name: str, to: str, kind: str, value: dict[str, Any], identity: str | None = None) -> dict[str, Any]:
    own = {} if identity is None else {"id": identity}
    return own | {"from_name": name, "to_name": to, "type": kind, "value": value}


def _of_responses(sample: Sample, annotations: Mapping[int, Annotation]) -> Iterator[dict[str, Any]]:
    for place, annotation in annotations.items():
        for number, span in enumerate(annotation.spans):
            if is_mark(span):
                yield from _of_span(span, sample.responses[place].text, place + 1, number)
        for question, answer in annotation.answers.items():
            if (kind := _kind_of(answer)) is not None:
                value = {"text": [answer]} if kind == "textarea" else {kind: answer}
                yield _result(f"question_{place + 1}_{question}", f"response_{place + 1}", kind, value)


def _of_span(span: Span, text: str, place: int, number: int) -> Iterator[dict[str, Any]]:
    label = next(name for name, value in LABELS.items() if value == span.label)
    to, identity = f"response_{place}", span.id or f"fgrl-{place}-{number}"
    region = {"start": span.start, "end": span.end}
    marked = region | {"text": text[span.start : span.end], "labels": [label]}
    yield _result(f"span_{place}", to, "labels", marked, identity)
    if span.reasons:
        yield _result(f"{label}_{place}", to, "choices", region | {"choices": list(span.reasons)}, identity)
    if span.note is not None:
        yield _result(f"note_{place}", to, "textarea", region | {"text": [span.note]}, identity)


def _kind_of(answer: Any) -> str | None:
    """Return Label Studio's type for an answer, or None if it has no type for it."""
    if isinstance(answer, str):
        return "textarea"
    if isinstance(answer, list) and answer and all(isinstance(item, str) for item in answer):
        return "choices"
    if isinstance(answer, int) and not isinstance(answer, bool) and 1 <= answer <= HIGHEST_RATING:
        return "rating"
    return None


def _of_verdict(verdict: PairVerdict | None) -> Iterator[dict[str, Any]]:
    if verdict is None:
        return
    if verdict.verdict == "tie":
        yield _result("tie", "response_1", "choices", {"choices": ["tie"]})
    else:
        better = verdict.first if verdict.verdict == "first" else verdict.second
        yield _result("preference", "preference", "pairwise", {"selected": ("left", "right")[better]})
    if verdict.reason is not None:
        yield _result("preference_reason", "response_1", "textarea", {"text": [verdict.reason]})


# ----- samples --------------------------------------------------------------------------------------------------------


def read_tasks(path: Path) -> list[Any]:
    """Return the tasks of a JSON file as Label Studio exports it. Raises `DataError` if the file is not a list of
    tasks.
    """
    try:
        tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}); export the project as JSON (not JSON-MIN)") from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise DataError(f"{path}: wants a list of tasks; export the project as JSON (not JSON-MIN)")
    return tasks


def from_tasks(tasks: Sequence[Mapping[str, Any]]) -> tuple[list[Sample], int]:
    """Return samples with their annotations, in the order of the tasks, and the number of skipped results, cancelled
    annotations and predictions, which this page cannot represent.

    Raises `DataError` for a task that does not have Label Studio's format, and for a span whose text is at another
    place.
    """
    samples, skipped = [], 0
    for number, task in enumerate(tasks):
        where = f"task {task.get('id', number)}"
        try:
            sample, left = _sample(task, where)
        except ValidationError as error:
            raise DataError(f"{where}: {in_words(error)}") from None
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise DataError(f"{where}: not as Label Studio writes it: {what}") from None
        samples.append(sample)
        skipped += left
    return samples, skipped


def _sample(task: Mapping[str, Any], where: str) -> tuple[Sample, int]:
    data, given = task["data"], task.get("annotations") or []
    sample = Sample.model_validate(data["sample"]) if "sample" in data else _foreign(data, task, where)
    read = [_work(sample, own, where) for own in given if not own.get("was_cancelled")]
    annotations = [
        [own.annotations[place] for own in read if place in own.annotations] for place in range(len(sample.responses))
    ]
    verdicts = [own.verdict for own in read if own.verdict is not None]
    people = {own.by: ({} if own.seconds is None else {"seconds": own.seconds}) | {"done": True} for own in read}
    meta = sample.meta | ({KEY: {"by": people}} if people else {})
    changed = with_annotations(sample, annotations, verdicts=verdicts or None, meta=meta)
    skipped = sum(own.skipped for own in read) + len(given) - len(read) + len(task.get("predictions") or [])
    return Sample.model_validate(changed.model_dump()), skipped


def _foreign(data: Mapping[str, Any], task: Mapping[str, Any], where: str) -> Sample:
    """Return the sample of a task that was not made by fgrl."""
    texts: list[str] = []
    while f"response_{len(texts) + 1}" in data:
        texts.append(data[f"response_{len(texts) + 1}"])
    if not texts or "query" not in data:
        raise DataError(f"{where}: data wants `query` and `response_1` (and `response_2`) with texts, or our `sample`")
    known = {"query", *(f"response_{number}" for number in range(1, len(texts) + 1))}
    return Sample(
        id=str(data.get("id", task.get("id", where))), prompt=data["query"],
        responses=[Response(text=text) for text in texts],
        meta={key: value for key, value in data.items() if key not in known},
    )  # fmt: skip


@dataclass
class _Work:
    """One annotation of a task."""

    by: str
    seconds: float | None
    annotations: dict[int, Annotation] = field(default_factory=dict)
    """Annotations by the place of the response."""
    verdict: PairVerdict | None = None
    skipped: int = 0


def _work(sample: Sample, given: Mapping[str, Any], where: str) -> _Work:
    """Sort the flat list of results into spans, answers and a preference."""
    work = _Work(_person(given.get("completed_by")), given.get("lead_time"))
    spans: dict[tuple[int, str], Span] = {}
    """Spans by the place of the response, and the region."""
    said: dict[tuple[int, str], dict[str, Any]] = {}
    """Reasons and note of a region."""
    answers: dict[int, dict[str, Any]] = {}
    better = reason = None
    for result in given.get("result") or []:
        name, kind, value = str(result.get("from_name")), result["type"], result.get("value") or {}
        to = re.fullmatch(r"response_(\d+)", str(result.get("to_name")))
        place = int(to[1]) - 1 if to else -1
        region = (place, str(result.get("id")))
        if name == "annotator":
            work.by = _text(value)
        elif kind == "pairwise":
            better = {"left": "first", "right": "second"}[value["selected"]]
        elif name == "tie":
            better = "tie"
        elif name == "preference_reason":
            reason = _text(value)
        elif kind == "labels" and to and (label := _label(value)) is not None:
            spans[region] = _span(sample.responses[place].text, value, label, result["id"], where)
        elif kind in ("choices", "textarea", "rating") and to:
            content = _text(value) if kind == "textarea" else value[kind]
            if "start" in value:
                said.setdefault(region, {})["note" if kind == "textarea" else "reasons"] = content
            else:
                answers.setdefault(place, {})[re.sub(r"^question_\d+_", "", name)] = content
        else:
            work.skipped += 1
    work.skipped += len(said.keys() - spans.keys()) + (reason is not None and better is None)
    if better is not None:
        work.verdict = PairVerdict(first=0, second=1, verdict=better, reason=reason, by=work.by)
    alone = work.seconds if len(sample.responses) == 1 else None
    for place in range(len(sample.responses)):
        own = [span.model_copy(update=said.get(key, {})) for key, span in spans.items() if key[0] == place]
        if own or place in answers or alone is not None:
            work.annotations[place] = Annotation(by=work.by, spans=own, answers=answers.get(place, {}), seconds=alone)
    return work


def _label(value: Mapping[str, Any]) -> float | None:
    """Return the label of a region, or None if it is not a like or a dislike, or if there are several."""
    labels = [str(label).lower() for label in value.get("labels") or []]
    return LABELS.get(labels[0]) if len(labels) == 1 else None


def _span(text: str, value: Mapping[str, Any], label: float, identity: str, where: str) -> Span:
    start, end = value["start"], value["end"]
    quote = value.get("text", text[start:end])
    if _without_space(text[start:end]) != _without_space(quote):
        raise DataError(
            f"{where}: region {identity}: the text from character {start} to {end} is {text[start:end]!r}, and not {quote!r}. "
            "Label Studio before 2022 counted characters in another way: import the project into a newer one and export it there"
        )
    return Span(start=start, end=end, label=label, id=None if ADDED_ID.fullmatch(identity) else identity)


def _without_space(text: str) -> str:
    """Return the text without white space. Label Studio writes the text as the browser selected it, and line ends as a
    backslash and an n.
    """
    return _WHITE.sub("", text)


def _person(completed_by: Any) -> str:
    """Return the e-mail address of a user, else the name or the number, or an empty text if all are unknown."""
    if isinstance(completed_by, Mapping):
        return str(completed_by.get("email") or completed_by.get("username") or completed_by.get("id") or "")
    return "" if completed_by is None else str(completed_by)


def _text(value: Mapping[str, Any]) -> str:
    """Return the lines of a text area."""
    text = value["text"]
    return text if isinstance(text, str) else "\n".join(text)


# ----- labeling configuration -----------------------------------------------------------------------------------------


def labeling_config(samples: Sequence[Sample], settings: PageSettings | None = None) -> str:
    """Return the labeling configuration (XML) of a project for these samples: two texts side by side with likes and
    dislikes, reasons, notes, questions and the preference. Elements that the settings do not define (all of them,
    without settings) are taken from the annotations.
    """
    settings = settings or PageSettings(modes=PageModes(reasons="none"))
    annotations = [one for sample in samples for response in sample.responses for one in response.annotations]
    reasons: dict[str, dict[str, str]] = {}
    for label, value in LABELS.items():
        taxonomy = settings.taxonomy if settings.modes.reasons == "taxonomy" else None
        own = {} if taxonomy is None else {one.id: one.text for one in taxonomy.of(value).attributes}
        own |= {} if taxonomy is None else {OTHER: f"Other. {taxonomy.of(value).other}"}
        spans = [span for one in annotations for span in one.spans if span.label == value]
        reasons[label] = own | {reason: own.get(reason, reason) for span in spans for reason in span.reasons}
    questions: dict[str, tuple[str, str, dict[str, str]]] = {
        question.id: (
            question.text, "choices" if question.kind == "tick" else "textarea",
            {option.id: option.text for option in question.options},
        ) for question in settings.questions
    }  # fmt: skip
    for name, answer in (pair for one in annotations for pair in one.answers.items()):
        if (kind := _kind_of(answer)) is not None:
            _text, known_kind, options = questions.setdefault(name, (name, kind, {}))
            for option in answer if kind == known_kind == "choices" else ():
                options.setdefault(option, option)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.from_string(TEMPLATE.read_text("utf-8")).render(
        places=range(1, 1 + max((len(sample.responses) for sample in samples), default=2)), modes=settings.modes,
        reasons=reasons, questions=questions, highest=HIGHEST_RATING,
    )  # fmt: skip
    return "".join(line for line in text.splitlines(keepends=True) if line.strip()) + "\n"
