"""Stored work of annotators: one revision for each time that a span, an answer, a preference or a time is saved.

Kinds of revisions, with their key and body:

- `order`; empty key; `{"order": [1, 0]}`: places of the responses as they were shown, from left to right
- `span`; the span's id; place, start, end, quote, label, reasons, note, deleted (`SpanBody`)
- `answers`; place of the response; answers to questions about the whole response, by the question's id
- `verdict`; empty key; `{"better": place or null for a tie, "reason": text}`, and `"deleted": true` if withdrawn
- `time`; an id; `{"seconds": active time}`; the times of an item are added up
- `done`; empty key; `{"done": true}` when the annotator finished the item, false when it was opened again
- `suggestion`; place of the suggested span (`fgrl.feedback.suggestions`);
  `{"accepted": true, false or null for undecided, "span": id of the annotator's own span created from it}`
- `cannot_judge`; empty key; `{"cannot": true or false, "comment": reason}`

Offsets are code points of the response's text. The newest revisions form the current record of an annotator
(`ItemState`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from fgrl.base.errors import DataError
from fgrl.feedback.page_settings import LONGEST_NOTE, PageSettings
from fgrl.feedback.suggestions import suggested
from fgrl.types import Record, Sample

Kind = Literal["order", "span", "answers", "verdict", "time", "done", "suggestion", "cannot_judge"]
CONTENT = ("span", "answers", "verdict", "suggestion", "cannot_judge")
"""Kinds with an annotator's opinion on an item."""
ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
"""Ids of spans and times: they are parts of addresses."""


class Refused(DataError):
    """Work of an annotator or a file that does not fit the item. The message names the field."""


class _Body(Record):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class OrderBody(_Body):
    """Order in which the responses were shown."""

    order: list[int] = Field(min_length=1)
    """Places of the responses, from left to right."""


class SpanBody(_Body):
    """A marked passage of one response."""

    place: int = Field(ge=0)
    """Place of the response among the sample's responses."""
    start: int = Field(ge=0)
    """First character, in code points."""
    end: int = Field(ge=0)
    """The position after the last character."""
    quote: str
    """The marked characters: the store refuses a quote that is not the text from start to end."""
    label: Literal[1, -1]
    """1 if liked, -1 if disliked."""
    reasons: list[str] = Field([], max_length=200)
    """Ids of the attributes that are ticked."""
    note: str = Field("", max_length=LONGEST_NOTE)
    """Free text."""
    deleted: bool = False
    """True if the annotator removed the span. A later revision can restore it."""

    @field_validator("note", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return "" if value is None else value

    @model_validator(mode="after")
    def _not_empty(self) -> SpanBody:
        if self.end <= self.start:
            raise ValueError(f"the span ends at {self.end}, which is not behind its start {self.start}")
        return self


class VerdictBody(_Body):
    """Preference between the responses."""

    better: int | None = Field(ge=0)
    """Place of the better response among the sample's responses; None: a tie."""
    reason: str = Field("", max_length=LONGEST_NOTE)
    """Reason for the preference, in free text."""
    deleted: bool = False
    """True if the annotator withdrew the preference; stored only if true."""


class TimeBody(_Body):
    """Time that the annotator was active on an item."""

    seconds: float = Field(ge=0, le=86_400)
    """Active time in seconds, at most a day."""


class DoneBody(_Body):
    """Mark of an item as finished or open."""

    done: bool


class SuggestionBody(_Body):
    """An annotator's decision on a suggested span."""

    accepted: bool | None
    """True if accepted, False if rejected; None: undecided again."""
    span: str | None = None
    """Id of the annotator's own span that was created by accepting the suggestion."""


class CannotJudgeBody(_Body):
    """Statement that the annotator can or cannot judge the item."""

    cannot: bool
    comment: str = Field("", max_length=LONGEST_NOTE)
    """Reason, in free text."""


BODIES: dict[str, type[_Body]] = {
    "order": OrderBody, "span": SpanBody, "verdict": VerdictBody, "time": TimeBody, "done": DoneBody,
    "suggestion": SuggestionBody, "cannot_judge": CannotJudgeBody,
}  # fmt: skip
"""Classes of the bodies of every kind except the answers, whose fields are the questions of the page."""


class Revision(Record):
    """One stored version of one span, answer, preference or other part of an annotator's work."""

    item: str
    """Id of the sample."""
    annotator: str
    kind: Kind
    key: str
    version: int = Field(ge=1)
    """Number of the revision, counted from 1 for each key."""
    time: str
    """Time of storage: ISO 8601 with an offset."""
    body: dict[str, Any]

    @field_validator("time")
    @classmethod
    def _moment(cls, value: str) -> str:
        if datetime.fromisoformat(value).tzinfo is None:
            raise ValueError("a time without an offset from UTC")
        return value


@dataclass
class ItemState:
    """Current record of one annotator for one item."""

    order: list[int] | None = None
    """Places of the responses as they were shown; None if they were never shown."""
    spans: dict[str, Revision] = field(default_factory=dict)
    """Newest revision of each span by its id, including deleted spans, in the order in which they were first saved."""
    answers: dict[int, Revision] = field(default_factory=dict)
    """Newest revisions of the answers, by place of the response."""
    last_verdict: Revision | None = None
    """Newest revision of the preference, also if it is a withdrawal."""
    done: bool = False
    seconds: float | None = None
    """Active time in seconds; None if it was not measured."""
    suggestions: dict[str, Revision] = field(default_factory=dict)
    """Decisions, by the suggestion's key."""
    cannot_judge: Revision | None = None
    """Newest revision, which may say that the item can be judged."""
    at: str = ""
    """Time of the last change."""

    @property
    def verdict(self) -> Revision | None:
        """Return the newest preference, or None if there is none or it was withdrawn."""
        return None if self.last_verdict is None or self.last_verdict.body.get("deleted") else self.last_verdict

    @property
    def live_spans(self) -> dict[str, Revision]:
        """Return the spans that are not deleted."""
        return {id: span for id, span in self.spans.items() if not span.body["deleted"]}

    @property
    def begun(self) -> bool:
        """Return True if there is any work except the order of the responses and the time."""
        return bool(
            self.spans or self.answers or self.last_verdict or self.suggestions or self.cannot_judge or self.done
        )

    @property
    def unjudged(self) -> str | None:
        """Return the reason why the annotator cannot judge the item, or None if they can."""
        own = self.cannot_judge
        return own.body["comment"] if own is not None and own.body["cannot"] else None

    def accepts(self, suggestion: str) -> bool | None:
        """Return whether the annotator has accepted this suggestion and still has the span created from it, or None if
        it is undecided.
        """
        own = self.suggestions.get(suggestion)
        if own is None or own.body["accepted"] is None:
            return None
        return own.body["accepted"] and own.body["span"] in self.live_spans


def state_of(revisions: Iterable[Revision]) -> ItemState:
    """Return the state after all revisions of one annotator and item, given in the order in which they were stored."""
    newest: dict[tuple[Kind, str], Revision] = {}
    state = ItemState()
    for revision in revisions:
        newest[revision.kind, revision.key] = revision
        state.at = max(state.at, revision.time)
        if revision.kind == "time":
            state.seconds = (state.seconds or 0.0) + revision.body["seconds"]

    def each(kind: Kind) -> dict[str, Revision]:
        return {key: own for (of, key), own in newest.items() if of == kind}

    state.order = next((own.body["order"] for own in each("order").values()), None)
    state.done = any(own.body["done"] for own in each("done").values())
    state.spans, state.suggestions = each("span"), each("suggestion")
    state.answers = {int(place): own for place, own in each("answers").items()}
    state.last_verdict, state.cannot_judge = newest.get(("verdict", "")), newest.get(("cannot_judge", ""))
    return state


def canonical(body: Mapping[str, Any]) -> str:
    """Return JSON in ASCII with sorted keys: equal bodies have equal texts. Raises `Refused` for values that JSON or
    UTF-8 cannot represent.
    """
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except UnicodeEncodeError:
        raise Refused("a text contains half of a surrogate pair, which no UTF-8 file can hold") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"the value cannot be stored as JSON: {error}") from None


def checked(kind: Kind, key: str, body: Mapping[str, Any], sample: Sample) -> dict[str, Any]:
    """Return the body with all fields, if it fits the kind and the sample's responses. Raises `Refused` otherwise."""
    if wrong := _wrong_key(kind, key, sample):
        raise Refused(wrong)
    if kind == "answers":
        if not all(isinstance(name, str) for name in body):
            raise Refused("answers: wants an object of answers by the question's id")
        return dict(body)
    if kind not in BODIES:
        raise Refused(f"there is no kind of revision {kind!r}")
    try:
        read = BODIES[kind].model_validate(dict(body))
    except ValidationError as error:
        raise Refused(in_words(error)) from None
    match read:
        case SpanBody():
            _need_places([read.place], sample)
            text = sample.responses[read.place].text
            if read.end > len(text):
                raise Refused(f"end: {read.end}, but the response has {len(text)} characters")
            if text[read.start : read.end] != read.quote:
                raise Refused(
                    f"quote: it is not the text from character {read.start} to {read.end} of response {read.place}; "
                    "offsets count code points"
                )
        case VerdictBody():
            _need_places([] if read.better is None else [read.better], sample)
            return read.model_dump(exclude=None if read.deleted else {"deleted"})
        case OrderBody():
            _need_places(read.order, sample)
    return read.model_dump()


def against(settings: PageSettings, kind: Kind, body: Mapping[str, Any], places: int) -> str | None:
    """Return the reason why the settings of the page do not allow a checked body, or None if they do. places: number of
    responses that the page shows.
    """
    match kind:
        case "span":
            return None if body["deleted"] else settings.wrong_span(body["label"], body["reasons"], body["note"])
        case "answers":
            return settings.wrong_answers(body)
        case "verdict":
            return settings.wrong_verdict(body["better"], body["reason"], places)
    return None


def _wrong_key(kind: Kind, key: str, sample: Sample) -> str:
    """Return the reason why this is not a key of a revision of this kind, or an empty text if it is."""
    short = repr(key[:40])
    match kind:
        case "span" | "time":
            right, wrong = bool(ID.fullmatch(key)), "id: wants at most 128 letters, digits and _ . : -, not " + short
        case "answers":
            right = key in map(str, range(len(sample.responses)))
            wrong = f"answers belong to the place of a response, and {short} is none"
        case "suggestion":
            right, wrong = key in suggested(sample), f"there is no suggestion {short}"
        case _:
            right, wrong = not key, f"a revision of kind {kind} has no key, and got {short}"
    return "" if right else wrong


def _need_places(places: Sequence[int], sample: Sample) -> None:
    for place in places:
        if not 0 <= place < len(sample.responses):
            raise Refused(f"place: there is no response {place}; the sample has {len(sample.responses)}")
    if len(set(places)) < len(places):
        raise Refused("order: a response is shown twice")


def in_words(error: ValidationError) -> str:
    """Return the first mistake: its place and the error."""
    what = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, what["loc"]))
    return f"{place}{': ' * bool(place)}{what['msg'].removeprefix('Value error, ')}"
