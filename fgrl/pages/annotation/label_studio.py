"""Label Studio's task format: samples with their annotations as tasks, tasks as samples, and a labeling configuration
that fits.

A task holds the texts in `data` (`query`, `document`, `response_1`, ...), the whole sample without its annotations as
`data.sample`, and one annotation per annotator. In `annotations[].result`, which is a flat list:

| what | type | from_name | value | |---|---|---|---| | a span | labels | span_1 | start, end, text, labels: [like] or
[dislike] | | its reasons | choices | like_1, dislike_1 | the same start and end, choices: ids; the span's id | | its
note | textarea | note_1 | the same start and end, text: [note]; the span's id | | an answer | choices, textarea, rating
| question_1_ID | choices, text or rating | | the preference | pairwise | preference | selected: left (the first
response) or right | | a tie | choices | tie | choices: [tie], since Pairwise has no third choice | | the reason for it
| textarea | preference_reason | text: [reason] | | the annotator | textarea | annotator | text: [name], since Label
Studio accepts as `completed_by` only users that it knows |

The numbers are places of responses, counted from 1. Left out: Label Studio's other types (counted when they are read).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from pydantic import ValidationError

from fgrl.base.errors import DataError
from fgrl.feedback.page_settings import OTHER, PageSettings
from fgrl.feedback.templates import as_text
from fgrl.pages.annotation.conversion import KEY, NotKept, about, annotations_by, by_annotator, named_in
from fgrl.types import Annotation, PairVerdict, Response, Sample, Span

Offsets = Literal["code_points", "utf16"]
"""How places in a text are counted: by characters as in Python, or by JavaScript's 16-bit units (an emoji is two)."""

ADDED_ID = re.compile(r"fgrl-\d+-\d+")
"""Ids of regions of spans that have no separate id."""
TWO_PLACES = "spans whose text is at two places, depending on how characters are counted (--offsets decides)"
LABELS = {"like": 1.0, "dislike": -1.0}
HIGHEST_RATING = 10
_WHITE = re.compile(r"\s+|\\n")


# ----- tasks ----------------------------------------------------------------------------------------------------------


def to_tasks(
    samples: Iterable[Sample],
    *,
    document: str = "document",
    query: str = "question",
    offsets: Offsets = "code_points",
    users: Mapping[str, int] | None = None,
) -> tuple[list[dict[str, Any]], NotKept]:
    """One task per sample, and what Label Studio has no place for.

    document: entry of a sample's `meta` that holds the knowledge source. query: entry that holds the query, where the
    prompt holds more than that. users: id in Label Studio by annotator; it becomes `completed_by` (an annotator without
    one leaves it to whoever imports the file). Raises `DataError` for an annotator who annotated a response twice.
    """
    report = NotKept()
    return [_task(sample, document, query, offsets, users or {}, report) for sample in samples], report


def _task(
    sample: Sample, document: str, query: str, offsets: Offsets, users: Mapping[str, int], report: NotKept
) -> dict[str, Any]:
    bare = sample.model_copy(
        update={
            "responses": [response.model_copy(update={"annotations": []}) for response in sample.responses],
            "verdicts": None,
            "meta": {key: value for key, value in sample.meta.items() if key != KEY},
        }
    )
    shown = sample.meta.get(query)
    shown = shown if isinstance(shown, str) and shown.strip() else as_text(sample.prompt)
    data = {"query": shown, "document": str(sample.meta.get(document, ""))}
    data |= {f"response_{place}": response.text for place, response in enumerate(sample.responses, start=1)}
    people = by_annotator(sample)
    report.add("revisions", len(about(sample).get("revisions", ())))
    own = about(sample)
    report.add("modes of the page", "page" in own)
    report.add("earlier contents of meta.annotation", "before" in own)
    report.add("settings of the page with its annotators", "store" in own)
    report.add("other entries of meta.annotation", len(own.keys() - {"by", "page", "before", "revisions", "store"}))
    report.add("values of meta.annotation that are no mapping", KEY in sample.meta and sample.meta[KEY] != own)
    report.add("annotators who opened an item without annotating it", len(set(people) - set(named_in(sample))))
    annotations = []
    for name in named_in(sample):
        result = [*_of_responses(sample, name, offsets, report), *_of_verdict(sample, name, report)]
        if name:
            result.append(_result("annotator", "response_1", "textarea", {"text": [name]}))
        annotation: dict[str, Any] = {"result": result}
        noted = people.get(name, {})
        known = (one.seconds for one in annotations_by(sample, name).values() if one.seconds is not None)
        seconds = noted.get("seconds", next(known, None))
        if seconds is not None:
            annotation["lead_time"] = seconds
        report.add("orders in which the responses were shown", "order" in noted)
        report.add("marks that an item is not finished", noted.get("done") is False)
        report.add("times of the last change", "at" in noted)
        report.add("other entries about an annotator", len(noted.keys() - {"order", "seconds", "done", "at"}))
        if name in users:
            annotation["completed_by"] = users[name]
        annotations.append(annotation)
    return {"data": data | {"sample": bare.model_dump(mode="json", exclude_defaults=True)}, "annotations": annotations}


def _result(name: str, to: str, kind: str, value: dict[str, Any], identity: str | None = None) -> dict[str, Any]:
    own = {} if identity is None else {"id": identity}
    return own | {"from_name": name, "to_name": to, "type": kind, "value": value}


def _of_responses(sample: Sample, name: str, offsets: Offsets, report: NotKept) -> Iterator[dict[str, Any]]:
    for place, annotation in annotations_by(sample, name).items():
        report.add("critiques", annotation.critique is not None)
        report.add("annotations that mark and answer nothing", not annotation.spans and not annotation.answers)
        for number, span in enumerate(annotation.spans):
            yield from _of_span(span, sample.responses[place].text, place + 1, number, offsets, report)
        for question, answer in annotation.answers.items():
            yield from _of_answer(question, answer, place + 1, report)


def _of_span(
    span: Span, text: str, place: int, number: int, offsets: Offsets, report: NotKept
) -> Iterator[dict[str, Any]]:
    if not report.marks(span):
        return
    label = next(name for name, value in LABELS.items() if value == span.label)
    to, identity = f"response_{place}", span.id or f"fgrl-{place}-{number}"
    region = {"start": span.start, "end": span.end}
    if offsets == "utf16":
        region = {name: utf16_offset(text, offset) for name, offset in region.items()}
    yield _result(
        f"span_{place}", to, "labels", region | {"text": text[span.start : span.end], "labels": [label]}, identity
    )
    if span.reasons:
        yield _result(f"{label}_{place}", to, "choices", region | {"choices": list(span.reasons)}, identity)
    if span.note is not None:
        yield _result(f"note_{place}", to, "textarea", region | {"text": [span.note]}, identity)


def _of_answer(question: str, answer: Any, place: int, report: NotKept) -> Iterator[dict[str, Any]]:
    kind = _kind_of(answer)
    if kind is None:
        report.add("answers that are no text, ticks or rating")
        return
    key, value = {"choices": ("choices", answer), "textarea": ("text", [answer]), "rating": ("rating", answer)}[kind]
    yield _result(f"question_{place}_{question}", f"response_{place}", kind, {key: value})


def _kind_of(answer: Any) -> str | None:
    """Label Studio's type for an answer; None: it has none."""
    if isinstance(answer, str):
        return "textarea"
    if isinstance(answer, list) and answer and all(isinstance(item, str) for item in answer):
        return "choices"
    if isinstance(answer, int) and not isinstance(answer, bool) and 1 <= answer <= HIGHEST_RATING:
        return "rating"
    return None


def _of_verdict(sample: Sample, name: str, report: NotKept) -> Iterator[dict[str, Any]]:
    own = [verdict for verdict in sample.verdicts or [] if verdict.by == name]
    fitting = [verdict for verdict in own if {verdict.first, verdict.second} == {0, 1}]
    report.add("comparisons of other than the first two responses, or further ones", len(own) - len(fitting[:1]))
    for verdict in fitting[:1]:
        report.add("probabilities and agreements of comparisons", verdict.p is not None or verdict.agree is not None)
        if verdict.verdict is None:
            report.add("missing verdicts")
            continue
        if verdict.verdict == "tie":
            yield _result("tie", "response_1", "choices", {"choices": ["tie"]})
        else:
            better = verdict.first if verdict.verdict == "first" else verdict.second
            yield _result("preference", "preference", "pairwise", {"selected": ("left", "right")[better]})
        if verdict.reason is not None:
            yield _result("preference_reason", "response_1", "textarea", {"text": [verdict.reason]})


# ----- samples --------------------------------------------------------------------------------------------------------


def read_tasks(path: Path) -> list[Any]:
    """Return the tasks of a JSON file as Label Studio exports it. Raises `DataError` when it is no list of them."""
    try:
        tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}); export the project as JSON (not JSON-MIN)") from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise DataError(f"{path}: wants a list of tasks; export the project as JSON (not JSON-MIN)")
    return tasks


def from_tasks(
    tasks: Sequence[Mapping[str, Any]], *, offsets: Offsets | Literal["auto"] = "auto"
) -> tuple[list[Sample], NotKept]:
    """Return samples with their annotations, in the order of the tasks, and what was not understood.

    offsets `auto`: the `text` of a task's regions decides how its places are counted: as 16-bit units when the text of
    a region is only there, else as code points. Text that is at two different places, depending on the way, is counted.
    Where it fits neither way but occurs once, that place is taken. An annotation that was cancelled is left out. Raises
    `DataError` for a task without texts.
    """
    report = NotKept()
    samples = [_sample(task, number, offsets, report) for number, task in enumerate(tasks)]
    return samples, report


def _sample(task: Mapping[str, Any], number: int, offsets: str, report: NotKept) -> Sample:
    where = f"task {task.get('id', number)}"
    sample = _bare(task, where)
    spans_of: dict[int, list[Annotation]] = {place: [] for place in range(len(sample.responses))}
    verdicts: list[PairVerdict] = []
    people: dict[str, dict[str, Any]] = {}
    given = task.get("annotations") or task.get("completions") or []
    if offsets == "auto" and any(_only_utf16(sample, annotation) for annotation in given):
        offsets = "auto_utf16"
    for annotation in given:
        if annotation.get("was_cancelled"):
            report.add("cancelled annotations")
            continue
        reading = _Annotation(sample, annotation, offsets, report)
        reading.read()
        for place, own in reading.annotations():
            spans_of[place].append(own)
        verdicts += reading.verdicts()
        people[reading.by] = {"done": True} if reading.seconds is None else {"seconds": reading.seconds, "done": True}
    report.add("predictions", len(task.get("predictions") or []))
    responses = [
        response.model_copy(update={"annotations": spans_of[place]}) for place, response in enumerate(sample.responses)
    ]
    meta = sample.meta | ({KEY: {"by": people}} if people else {})
    return Sample.model_validate(
        sample.model_copy(update={"responses": responses, "verdicts": verdicts or None, "meta": meta}).model_dump()
    )


def _bare(task: Mapping[str, Any], where: str) -> Sample:
    data = task.get("data")
    if not isinstance(data, Mapping):
        raise DataError(f"{where}: it has no `data`")
    if isinstance(data.get("sample"), Mapping):
        try:
            return Sample.model_validate(data["sample"])
        except ValidationError as error:
            raise DataError(f"{where}: data.sample: {error.errors()[0]['msg']}") from None
    texts: list[str] = []
    while isinstance(data.get(f"response_{len(texts) + 1}"), str):
        texts.append(data[f"response_{len(texts) + 1}"])
    query = data.get("query", data.get("prompt"))
    if not texts or not isinstance(query, str):
        raise DataError(f"{where}: data wants `query` and `response_1` (and `response_2`) with texts, or our `sample`")
    known = {"query", "prompt", *(f"response_{number}" for number in range(1, len(texts) + 1))}
    meta = {key: value for key, value in data.items() if key not in known}
    return Sample(
        id=str(data.get("id", task.get("id", where))), prompt=query, responses=[Response(text=text) for text in texts], meta=meta
    )  # fmt: skip


class _Annotation:
    """One annotation of a task: its flat list of results, sorted into spans, answers and a preference."""

    def __init__(self, sample: Sample, annotation: Mapping[str, Any], offsets: str, report: NotKept) -> None:
        self.sample, self.offsets, self.report = sample, offsets, report
        self.results: list[Mapping[str, Any]] = annotation.get("result") or []
        self.by = _person(annotation.get("completed_by"))
        lead = annotation.get("lead_time")
        self.seconds = float(lead) if isinstance(lead, int | float) and lead >= 0 else None
        self.spans: dict[tuple[int, str, str], Span] = {}
        """By place of the response, region and label."""
        self.notes: dict[tuple[int, str], str | None] = {}
        self.reasons: dict[tuple[int, str], dict[str, list[str]]] = {}
        """By place and region, then by the name of the list that they were ticked in, without its number."""
        self.answers: dict[int, dict[str, Any]] = {}
        self.places: set[int] = set()
        self.better: int | Literal["tie"] | None = None
        self.reason: str | None = None

    def read(self) -> None:
        for number, result in enumerate(self.results):
            value = result.get("value")
            name, kind = str(result.get("from_name", "")), str(result.get("type", ""))
            if not isinstance(value, Mapping):
                self.report.add("results without a value")
            elif name == "annotator":
                self.by = _first_text(value) or self.by
            elif kind == "pairwise":
                self.better = {"left": 0, "right": 1}.get(str(value.get("selected")))
            elif name == "tie":
                self.better = "tie"
            elif name == "preference_reason":
                self.reason = _first_text(value)
            else:
                self._of_response(result, name, kind, value, number)

    def _of_response(
        self, result: Mapping[str, Any], name: str, kind: str, value: Mapping[str, Any], number: int
    ) -> None:
        place = _place(self.sample, str(result.get("to_name", "")))
        if place is None:
            self.report.add("results about something other than a response")
            return
        self.places.add(place)
        region = (place, str(result.get("id", f"fgrl-{place + 1}-{number}")))
        if kind == "labels":
            self._span(place, region, value)
        elif kind == "choices" and "start" in value:
            ticked = list(map(str, value.get("choices") or []))
            self.reasons.setdefault(region, {})[re.sub(r"_\d+$", "", name)] = ticked
        elif kind == "textarea" and "start" in value:
            self.notes[region] = _first_text(value)
        elif kind in ("choices", "textarea", "rating"):
            question = re.sub(r"^question_\d+_", "", name)
            answer = _first_text(value) if kind == "textarea" else value.get(kind)
            self.answers.setdefault(place, {})[question] = answer
        else:
            self.report.add(f"results of type {kind}")

    def _span(self, place: int, region: tuple[int, str], value: Mapping[str, Any]) -> None:
        known: list[str] = []
        for label in value.get("labels") or []:
            if str(label).lower() in LABELS:
                known.append(str(label).lower())
            else:
                self.report.add(f"spans labelled {label!r}")
        if not known:
            return
        located = self._located(self.sample.responses[place].text, value)
        if located is None:
            self.report.add("spans whose text is not at their place")
            return
        identity = None if ADDED_ID.fullmatch(region[1]) else region[1]
        for label in dict.fromkeys(known):
            key = (*region, label)
            own = identity if identity is None or len(set(known)) == 1 else f"{identity}-{label}"
            self.spans[key] = Span(start=located[0], end=located[1], label=LABELS[label], id=own)

    def _located(self, text: str, value: Mapping[str, Any]) -> tuple[int, int] | None:
        start, end, quote = value.get("start"), value.get("end"), value.get("text")
        try:
            start, end = int(start), int(end)  # type: ignore[arg-type]  # early versions wrote them as texts
        except (TypeError, ValueError):
            return None
        inside = _inside(text, start, end)
        if self.offsets in ("code_points", "utf16"):
            return inside.get(self.offsets)
        first = "utf16" if self.offsets == "auto_utf16" else "code_points"
        if not isinstance(quote, str):
            return inside.get(first)
        fitting = _fitting(text, inside, quote)
        if fitting:
            self.report.add(TWO_PLACES, first == "code_points" and len(set(fitting.values())) > 1)
            return fitting.get(first, next(iter(fitting.values())))
        if quote and text.count(quote) == 1:
            self.report.add("offsets of spans, which were found by their text")
            begin = text.index(quote)
            return begin, begin + len(quote)
        return None

    def annotations(self) -> Iterator[tuple[int, Annotation]]:
        """By the place of the response."""
        regions = {key[:2] for key in self.spans}
        self.report.add("reasons and notes without a span", len({*self.reasons, *self.notes} - regions))
        for (place, name, label), span in self.spans.items():
            others = {key[2] for key in self.spans if key[:2] == (place, name)} - {label}
            # a list that is named after another label of the region is not about this one
            lists = [ids for about, ids in self.reasons.get((place, name), {}).items() if about not in others]
            changes = {"reasons": [one for ids in lists for one in ids], "note": self.notes.get((place, name))}
            self.spans[place, name, label] = span.model_copy(update=changes)
        alone = len(self.sample.responses) == 1
        for place in range(len(self.sample.responses)):
            spans = [span for (owner, _id, _label), span in self.spans.items() if owner == place]
            answers = self.answers.get(place, {})
            if spans or answers or place in self.places or (alone and self.seconds is not None):
                yield (
                    place,
                    Annotation(by=self.by, spans=spans, answers=answers, seconds=self.seconds if alone else None),
                )

    def verdicts(self) -> list[PairVerdict]:
        if self.better is None:
            self.report.add("reasons of a preference without the preference", self.reason is not None)
            return []
        if len(self.sample.responses) < 2:
            self.report.add("preferences without two responses")
            return []
        verdict: Literal["first", "second", "tie"] = "tie" if self.better == "tie" else ("first", "second")[self.better]
        return [PairVerdict(first=0, second=1, verdict=verdict, reason=self.reason, by=self.by)]


def _place(sample: Sample, to: str) -> int | None:
    """Return the place of the response that a tag shows; None: it shows something else."""
    match = re.fullmatch(r"response_(\d+)", to)
    place = int(match[1]) - 1 if match else -1
    return place if 0 <= place < len(sample.responses) else None


def _person(completed_by: Any) -> str:
    """Return the e-mail address of a user, else the name or the number; empty: unknown."""
    if isinstance(completed_by, Mapping):
        return str(completed_by.get("email") or completed_by.get("username") or completed_by.get("id") or "")
    return "" if completed_by is None else str(completed_by)


def _first_text(value: Mapping[str, Any]) -> str | None:
    text = value.get("text")
    if isinstance(text, list):
        return "\n".join(map(str, text)) if text else None
    return None if text is None else str(text)


# ----- places ---------------------------------------------------------------------------------------------------------


def utf16_offset(text: str, offset: int) -> int:
    """Return the place of a character in JavaScript's 16-bit units."""
    return offset + sum(ord(letter) > 0xFFFF for letter in text[:offset])


def from_utf16(text: str, offset: int) -> int:
    """Return the place in code points; -1 outside the text or between the halves of a character."""
    units = 0
    for place, letter in enumerate(text):
        if units >= offset:
            return place if units == offset else -1
        units += 2 if ord(letter) > 0xFFFF else 1
    return len(text) if units == offset else -1


def _inside(text: str, start: int, end: int) -> dict[str, tuple[int, int]]:
    """Where start and end are by each way of counting that leaves them inside the text."""
    ways = {"code_points": (start, end), "utf16": (from_utf16(text, start), from_utf16(text, end))}
    return {way: place for way, place in ways.items() if 0 <= place[0] <= place[1] <= len(text)}


def _fitting(text: str, inside: Mapping[str, tuple[int, int]], quote: str) -> dict[str, tuple[int, int]]:
    """Those of the places where the text is the quote."""
    return {way: place for way, place in inside.items() if _alike(text[place[0] : place[1]], quote)}


def _only_utf16(sample: Sample, annotation: Mapping[str, Any]) -> bool:
    """Return True if a region of the annotation fits its text only when 16-bit units are counted."""
    for result in annotation.get("result") or []:
        value, place = result.get("value"), _place(sample, str(result.get("to_name", "")))
        if not isinstance(value, Mapping) or place is None or not isinstance(value.get("text"), str):
            continue
        try:
            start, end = int(value["start"]), int(value["end"])
        except (KeyError, TypeError, ValueError):
            continue
        text = sample.responses[place].text
        if list(_fitting(text, _inside(text, start, end), value["text"])) == ["utf16"]:
            return True
    return False


def _alike(one: str, other: str) -> bool:
    """Equal but for white space: Label Studio writes what the browser selected, and line ends as a backslash and
    an n.
    """
    return _WHITE.sub("", one) == _WHITE.sub("", other)


# ----- labeling configuration -----------------------------------------------------------------------------------------


def labeling_config(samples: Sequence[Sample], settings: PageSettings | None = None) -> str:
    """Return the labeling configuration (XML) of a project for these samples: two texts side by side with likes and
    dislikes, reasons, notes, questions and the preference. What the settings do not have (all of it, without settings)
    is taken from the annotations.
    """
    places = max((len(sample.responses) for sample in samples), default=2)
    modes = None if settings is None else settings.modes
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Style").text = ".htx-text { white-space: pre-wrap; }"
    ElementTree.SubElement(view, "Header", value="Query")
    ElementTree.SubElement(view, "Text", name="query", value="$query", selectionEnabled="false")
    sources = ElementTree.SubElement(view, "Collapse")
    source = ElementTree.SubElement(sources, "Panel", value="Source")
    ElementTree.SubElement(source, "Text", name="document", value="$document", selectionEnabled="false")
    texts = _choices_of_spans(samples, settings)
    questions = _questions(samples, settings)
    row = ElementTree.SubElement(view, "View", style="display: flex; gap: 2em")
    for place in range(1, places + 1):
        to = f"response_{place}"
        column = ElementTree.SubElement(row, "View", style="flex: 1")
        ElementTree.SubElement(column, "Header", value=f"Response {place}")
        if modes is None or modes.spans != "none":
            labels = ElementTree.SubElement(column, "Labels", name=f"span_{place}", toName=to)
            ElementTree.SubElement(labels, "Label", value="like", background="#2e7d32")
            ElementTree.SubElement(labels, "Label", value="dislike", background="#c62828")
        ElementTree.SubElement(column, "Text", name=to, value=f"${to}")
        if modes is None or modes.spans != "none":
            for label in LABELS:
                when = {"perRegion": "true", "visibleWhen": "region-selected", "whenLabelValue": label}
                if texts[label]:
                    _choices(column, f"{label}_{place}", to, texts[label], when)
            _text_area(column, f"note_{place}", to, "Note", {"perRegion": "true", "visibleWhen": "region-selected"})
        for name, (text, kind, options) in questions.items():
            ElementTree.SubElement(column, "Header", value=text, size="5")
            if kind == "choices":
                _choices(column, f"question_{place}_{name}", to, options, {})
            elif kind == "rating":
                ElementTree.SubElement(
                    column, "Rating", name=f"question_{place}_{name}", toName=to, maxRating=str(HIGHEST_RATING)
                )
            else:
                _text_area(column, f"question_{place}_{name}", to, text, {})
    if places > 1 and (modes is None or modes.preference):
        ElementTree.SubElement(view, "Header", value="Which response is better?")
        ElementTree.SubElement(view, "Pairwise", name="preference", toName="response_1,response_2")
        if modes is None or modes.tie:
            _choices(view, "tie", "response_1", {"tie": "They are equally good or poor."}, {})
        _text_area(view, "preference_reason", "response_1", "Why?", {})
    ElementTree.SubElement(view, "Header", value="Your name", size="5")
    _text_area(view, "annotator", "response_1", "Your name", {})
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


def _choices(
    parent: ElementTree.Element, name: str, to: str, options: Mapping[str, str], more: Mapping[str, str]
) -> None:
    """Check boxes; the alias is what Label Studio stores."""
    choices = ElementTree.SubElement(parent, "Choices", {"name": name, "toName": to, "choice": "multiple", **more})
    for identity, text in options.items():
        ElementTree.SubElement(choices, "Choice", value=text, alias=identity)


def _text_area(parent: ElementTree.Element, name: str, to: str, placeholder: str, more: Mapping[str, str]) -> None:
    fixed = {"name": name, "toName": to, "placeholder": placeholder, "maxSubmissions": "1", "editable": "true"}
    ElementTree.SubElement(parent, "TextArea", {**fixed, **more})


def _choices_of_spans(samples: Sequence[Sample], settings: PageSettings | None) -> dict[str, dict[str, str]]:
    """By label the text of every reason by its id."""
    texts: dict[str, dict[str, str]] = {label: {} for label in LABELS}
    if settings is not None and settings.taxonomy is not None and settings.modes.reasons == "taxonomy":
        for label, value in LABELS.items():
            reasons = settings.taxonomy.of(value)
            texts[label] = {attribute.id: attribute.text for attribute in reasons.attributes}
            texts[label][OTHER] = f"Other. {reasons.other}"
    for sample in samples:
        for response in sample.responses:
            for span in response.spans:
                own = next((texts[name] for name, value in LABELS.items() if value == span.label), {})
                for reason in span.reasons:
                    own.setdefault(reason, reason)
    return texts


def _questions(samples: Sequence[Sample], settings: PageSettings | None) -> dict[str, tuple[str, str, dict[str, str]]]:
    """Text, type and options of every question by its id."""
    questions: dict[str, tuple[str, str, dict[str, str]]] = {}
    for question in settings.questions if settings is not None else []:
        options = {option.id: option.text for option in question.options}
        questions[question.id] = question.text, "choices" if question.kind == "tick" else "textarea", options
    for sample in samples:
        for response in sample.responses:
            for annotation in response.annotations:
                for name, answer in annotation.answers.items():
                    if (kind := _kind_of(answer)) is not None:
                        own = questions.setdefault(name, (name, kind, {}))
                        for option in answer if kind == "choices" and own[1] == "choices" else ():
                            own[2].setdefault(option, option)
    return questions
