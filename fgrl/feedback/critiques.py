"""The JSON object in which a critic writes its critique of a response, and quotes its good and poor passages.

Written for training (the target z = [c; A(y)] of Text2Grad, section 3.4) and read from a model's answer. The reader
never guesses: an answer that it cannot read is a failure, and the response then has no critique.

Left out: quotes with separate reasons, and quotes with a gap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

from fgrl.base.errors import DataError
from fgrl.feedback.llm.asking import Parsed, parse_json
from fgrl.feedback.llm.json_object import first_object
from fgrl.feedback.quoting import Quotes, QuoteSearch
from fgrl.feedback.text_units import DIVIDE, AnyUnit
from fgrl.registry import Settings
from fgrl.types import Annotation, Span

UNITS = "labels"
"""Key of the list of units with their labels."""
QUOTATION_MARKS = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"))


class CritiqueFormat(Settings):
    """The keys of the JSON object that a critic writes.

    `{"textual_feedback": "It names the wrong city.", "good_spans": ["on the Seine"], "poor_spans": ["Lyon"]}`
    """

    text: str | None = "textual_feedback"
    """Key of the critique. null: the object has no critique, only spans (Text2Grad, section 4.5)."""
    labels: dict[str, float] = Field({"good_spans": 1.0, "poor_spans": -1.0}, min_length=1)
    """Keys of the lists of quotes, and the label of the spans in each list: above 0 good, below 0 poor, 0 neutral."""
    units: AnyUnit | None = None
    """One list that has every unit of the response with its label, in place of lists of quotes: the units that the
    annotators `dense_token` (`word`) and `prm` (`sentence`, `clause`, `statement`) label. The labels are the values of
    `labels`, and 0 for an unmarked unit: `{"labels": [["The", 0], ["mill", 1]]}`. Quotes cannot express this: if a word
    occurs several times, its quote would mean the first one.
    """

    @model_validator(mode="after")
    def _one_meaning_each(self) -> CritiqueFormat:
        if self.text in self.labels or not all(self.keys):
            raise ValueError("every key of the format needs a different name")
        if len(set(self.labels.values())) < len(self.labels):
            raise ValueError("two lists of `labels` have the same label: a span would fit both")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, in the order in which they are written."""
        return (*(() if self.text is None else (self.text,)), *(self.labels if self.units is None else (UNITS,)))

    def model(self) -> type[BaseModel]:
        """Return the pydantic model of the object: every key is required, and no other is allowed."""
        return _model(self.text, tuple(self.labels) if self.units is None else None)

    def json_schema(self) -> dict[str, Any]:
        """Return the object's JSON schema, for endpoints that can constrain a model's output to a schema."""
        return deepcopy(_json_schema(self.model()))


def _of_whole_characters(text: str) -> str:
    """Return the text. Raises ValueError for a text that no file can hold: it has half of a character (a lone
    surrogate).
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("it has half of a character")
    return text


_Text = Annotated[str, AfterValidator(_of_whole_characters)]


@lru_cache
def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


@lru_cache
def _model(text: str | None, lists: tuple[str, ...] | None) -> type[BaseModel]:
    """Return the schema of an output. lists: the keys of lists of quotes; None: one list of units with their labels."""
    fields: dict[str, Any] = {} if text is None else {"text": (_Text, Field(alias=text))}
    if lists is None:
        fields |= {
            "units": (list[tuple[_Text, Annotated[float, Field(strict=True, allow_inf_nan=False)]]], Field(alias=UNITS))
        }
    else:
        fields |= {f"list_{number}": (list[_Text], Field(alias=key)) for number, key in enumerate(lists)}
    return create_model("critique", __config__=ConfigDict(extra="forbid"), **fields)


@dataclass(frozen=True)
class Critique:
    """A critic's critique of a response."""

    annotation: Annotation
    """Text of the critique, and the spans that it quotes, list by list in the format's order."""
    quotes: dict[str, Quotes]
    """Quotes of each list, with their places."""

    def records(self) -> list[dict[str, Any]]:
        """Return how each quote was found: `Quotes.records`, each with the `list` that the quote is in."""
        return [{"list": key, **entry} for key, quotes in self.quotes.items() for entry in quotes.records()]


def write_critique(annotation: Annotation, response: str, form: CritiqueFormat) -> str:
    """Return an annotation of a response as the JSON object that a critic should write about it. A span is written as
    its text. When this is read again, a text that the response contains several times means its first place, and a text
    that is written n times means its first n places. Neutral spans (label 0) are left out unless the format has a list
    for them. Raises `DataError` for a span whose label has no list, and for an annotation without a critique if the
    format has one.
    """
    lists: dict[float, list[str]] = {label: [] for label in form.labels.values()}
    for span in sorted(annotation.spans, key=lambda span: (span.start, span.end)):
        if span.label in lists:
            lists[span.label].append(response[span.start : span.end])
        elif span.label != 0:
            known = ", ".join(f"{key}: {label:g}" for key, label in form.labels.items())
            raise DataError(f"a span has the label {span.label:g}, and no list of the format is for it: {known}")
    written: dict[str, Any] = {}
    if form.text is not None:
        if annotation.critique is None:
            raise DataError("an annotation has no critique: set `text: null` in the format to write its spans alone")
        written[form.text] = annotation.critique
    if form.units is not None:
        return json.dumps(written | {UNITS: _labelled_units(annotation, response, form.units)}, ensure_ascii=False)
    return json.dumps(written | {key: lists[label] for key, label in form.labels.items()}, ensure_ascii=False)


def _labelled_units(annotation: Annotation, response: str, kind: AnyUnit) -> list[tuple[str, float]]:
    """Return every unit with the label of the narrowest span around it, 0 if there is none."""
    spans = sorted(annotation.spans, key=lambda span: span.end - span.start)
    units = []
    for start, end in DIVIDE[kind](response):
        around = (span.label for span in spans if span.start <= start and end <= span.end)
        label = next(around, 0.0)
        units.append((response[start:end], int(label) if label == int(label) else label))
    return units


def read_critique(output: str, response: str, form: CritiqueFormat, search: QuoteSearch) -> Parsed[Critique]:
    """Return the critique of a response in a critic's answer.

    1. The answer is the JSON object of `form`, alone or in a fence: every key once, no other key, a text and lists of
       texts. Invalid JSON is repaired by json-repair (`repaired`). An object that does not close is not repaired, since
       the rest of it is unknown.
    2. Each quote is searched for in the response, list by list. If a quote is not there, only this quote is lost. So is
       a quote that the answer does not have as a whole between quotation marks: the repair invented it.

    With `units` of the form, the answer has to contain every unit of the response, in order, each with one of the
    labels; the units whose label is not 0 are the spans.

    Lists may be empty, also all of them. Raises ValueError with a reason that the model can act on, and nothing else;
    `Refused` for an answer that declines.
    """
    # 1.
    parsed = parse_json(output, form.model(), "it declines to criticise")
    _check_keys(output, form.keys, repaired=parsed.repaired)
    values = parsed.value.model_dump(by_alias=True)
    if form.units is not None:
        spans = _spans_of_units(values[UNITS], response, form)
        text = None if form.text is None else values[form.text]
        return Parsed(Critique(Annotation(spans=spans, critique=text), {}), parsed.repaired)
    # 2.
    quotes = {key: search.quotes_of(response) for key in form.labels}
    for key, own in quotes.items():
        own.take(values[key], lambda quote: not parsed.repaired or _is_whole(quote, output))
    spans = [span for key, own in quotes.items() for span in own.spans(form.labels[key])]
    text = None if form.text is None else values[form.text]
    return Parsed(Critique(Annotation(spans=spans, critique=text), quotes), parsed.repaired)


def _spans_of_units(units: list[tuple[str, float]], response: str, form: CritiqueFormat) -> list[Span]:
    assert form.units is not None
    places = DIVIDE[form.units](response)
    if len(units) != len(places):
        raise ValueError(f"it has {len(units)} labels for {len(places)} units: each unit has one")
    allowed = {*form.labels.values(), 0.0}
    for number, ((written, label), (start, end)) in enumerate(zip(units, places, strict=True), start=1):
        if written.split() != response[start:end].split():
            raise ValueError(f"unit {number} is {response[start:end][:60]!r}, not {written[:60]!r}")
        if label not in allowed:
            raise ValueError(
                f"{label:g} is no label: each one is {', '.join(f'{known:g}' for known in sorted(allowed))}"
            )
    return [
        Span(start=start, end=end, label=label)
        for (_written, label), (start, end) in zip(units, places, strict=True)
        if label
    ]


def _check_keys(output: str, keys: Iterable[str], *, repaired: bool) -> None:
    """Raise ValueError for a key that occurs twice, and for repaired JSON that does not close."""
    if repaired and first_object(output) is None and output.rfind("}") <= output.rfind("]"):
        raise ValueError("the JSON object does not close")
    marks = "".join({mark for pair in QUOTATION_MARKS for mark in pair}) if repaired else '"'
    for key in keys:
        if len(re.findall(rf"[{marks}]{re.escape(key)}[{marks}]\s*:", output)) > 1:
            raise ValueError(f"{key} is there more than once")


def _is_whole(quote: str, output: str) -> bool:
    """Return True if the output has the quote between quotation marks, escaped or not."""
    escaped = (json.dumps(quote)[1:-1], json.dumps(quote, ensure_ascii=False)[1:-1])
    forms: Collection[str] = {quote, quote.replace("'", "\\'"), *escaped}
    return any(f"{left}{form}{right}" in output for form in forms for left, right in QUOTATION_MARKS)
