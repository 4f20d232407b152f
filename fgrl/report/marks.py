"""Marks on an answer, whoever made them: tokens on which a criterion's verdict depends, passages that a critic or a person marked.

An answer is drawn as pieces. Where marked passages overlap, the text is cut at all of their ends, and each piece is underlined once
for every passage that covers it, in lanes below each other. What a mark means is never shown by colour alone: good passages
have a straight line, poor ones a wavy line, others a dotted line, and each has a number that leads to its reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from fgrl.report.escaping import MOST_CHARACTERS, long, render
from fgrl.report.lines import Line, response_text, tokens_of
from fgrl.results.reading import finite, mapping
from fgrl.results.text import duration, number, signed

LANES = 3
"""Underlines below each other; where more passages overlap, the last lane holds several."""
MOST_MARKS = 40
"""Passages of an annotation that are drawn, the first ones of the text."""
MOST_QUOTED = 90
"""Characters of a passage that are repeated beside its reasons."""
MOST_REASON = 600
"""Characters of a reason."""


@dataclass
class Piece:
    """Text that is drawn as one: a token, several tokens that share a character, or a part of a passage."""

    html: Markup
    level: str = ""
    """Shade, a class of the stylesheet: "p1" .. "p5", "n5" .. "n1", or "" for none."""
    title: str = ""
    strong: bool = False
    """A token that is relevant to a verdict."""
    special: bool = False
    """It covers no character of the answer, as the end-of-sequence token."""
    marks: list[str] = field(default_factory=list)
    """Classes of the passages that cover it, the outermost first: "good lane-0"."""
    ends: list[tuple[int, str]] = field(default_factory=list)
    """(number, kind) of the passages that end behind it."""


@dataclass(frozen=True)
class Mark:
    """A marked passage of a text: characters `start:end`."""

    start: int
    end: int
    label: float
    reasons: tuple[str, ...]

    @property
    def kind(self) -> str:
        """A class of the stylesheet."""
        return "good" if self.label > 0 else "poor" if self.label < 0 else "neutral"

    @property
    def words(self) -> str:
        """`good`, or `poor (−0.5)` where the label is another number than +1, 0 or -1."""
        return self.kind if self.label in (-1, 0, 1) else f"{self.kind} ({signed(self.label, 2)})"


@dataclass
class Passage:
    """A marked passage in the list beside the answer."""

    number: int
    kind: str
    words: str
    quote: Markup
    reasons: list[Markup]


@dataclass
class MarkedText:
    pieces: list[Piece]
    left_out: int
    """Characters at the end that are not drawn."""
    passages: list[Passage]
    notes: list[str]
    """What is not drawn."""


@dataclass
class ShownAnnotation:
    """What one critic or person recorded about an answer."""

    by: str
    missing: bool
    """The critic was asked, and nothing usable came back."""
    critique: Markup | None
    """None: there is no comment on the whole answer."""
    text: MarkedText | None
    """None where the annotation is missing."""
    facts: list[tuple[str, str]]
    """Answers to questions about the whole response, and the time that it took."""


def annotations_of_line(line: Line) -> list[ShownAnnotation]:
    """What rewards recorded about an answer, by the name of the reward, and what else the answer was annotated with."""
    text = response_text(line)
    shown = [annotation(text, value, str(name)) for name, value in mapping(line.get("annotations")).items()]
    return shown + annotations_of_response(mapping(line.get("response")))


def by_response(place: int) -> str:
    """The reason of a passage that a rewrite addresses, the response at this place of its sample."""
    return f"addressed by response {place + 1}"


def annotations_of_response(
    response: Mapping[str, Any], addressed: Callable[[int], str] = by_response
) -> list[ShownAnnotation]:
    """The annotations of a response of a sample that contain anything. `addressed` words the place of the rewrite that addresses a
    passage."""
    text, recorded = str(response.get("text") or ""), response.get("annotations")
    every = [mapping(item) for item in recorded] if isinstance(recorded, list) else []
    return [
        annotation(text, item, addressed=addressed)
        for item in every
        if any(item.get(name) for name in ("spans", "critique", "answers"))
    ]


def annotation(
    text: str, recorded: Any, name: str = "", addressed: Callable[[int], str] = by_response
) -> ShownAnnotation:
    """`recorded` is an annotation of `text` as JSON; anything else, as null, is missing. `name` is that of the reward that asked for
    it."""
    values = mapping(recorded)
    by = " · ".join(dict.fromkeys(part for part in (name, str(values.get("by") or "")) if part))
    if not isinstance(recorded, dict):
        return ShownAnnotation(by, True, None, None, [])
    critique = values.get("critique")
    facts = [
        (str(question), ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer))
        for question, answer in mapping(values.get("answers")).items()
    ]
    if (seconds := finite(values.get("seconds"))) is not None:
        facts.append(("time", duration(seconds)))
    spans = values.get("spans")
    marked = marked_text(text, spans if isinstance(spans, list) else [], addressed)
    return ShownAnnotation(by, False, long(critique) if critique else None, marked, facts)


def marked_text(text: str, spans: Iterable[Any], addressed: Callable[[int], str] = by_response) -> MarkedText:
    """A text with its marked passages, numbered in their order. `spans` are JSON; those that do not fit the text are counted."""
    every = list(spans)
    marks = sorted(
        (mark for span in every if (mark := read_mark(mapping(span), len(text), addressed))),
        key=lambda mark: (mark.start, -mark.end),
    )
    drawn = marks[:MOST_MARKS]
    notes = []
    if unfit := len(every) - len(marks):
        notes.append(f"{unfit} marked passage{'s do' if unfit > 1 else ' does'} not fit the text.")
    if more := len(marks) - len(drawn):
        notes.append(f"{more} more marked passage{'s' * (more > 1)} not drawn.")
    if not every:
        notes.append("No passage is marked.")
    passages = [
        Passage(
            number, mark.kind, mark.words, _quote(text, mark), [long(reason, MOST_REASON) for reason in mark.reasons]
        )
        for number, mark in enumerate(drawn, 1)
    ]
    return MarkedText(cut(text[:MOST_CHARACTERS], drawn), max(0, len(text) - MOST_CHARACTERS), passages, notes)


def read_mark(span: Mapping[str, Any], size: int, addressed: Callable[[int], str] = by_response) -> Mark | None:
    """A span of the record as a mark; None where it lies outside of a text of `size` characters."""
    start, end = span.get("start"), span.get("end")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end <= size:
        return None
    label, weight = finite(span.get("label", 1.0)), finite(span.get("weight"))
    ticked = span.get("reasons")
    reasons = [str(reason) for reason in ticked] if isinstance(ticked, list) else []
    if span.get("note"):
        reasons.append(str(span["note"]))
    if weight is not None and weight != 1:
        reasons.append(f"weight {number(weight)}")
    if type(span.get("answered_by")) is int:
        reasons.append(addressed(span["answered_by"]))
    return Mark(start, end, 0.0 if label is None else label, tuple(reasons))


def cut(text: str, marks: Sequence[Mark]) -> list[Piece]:
    """The text in pieces that no passage begins or ends inside of, each with the passages that cover it.

    `marks` are in order; a passage beyond the end of `text` is left out, one that exceeds it ends with it. An empty passage is a
    piece without text.
    """
    lane_of = lanes(marks)
    shown = [(i, mark.start, min(mark.end, len(text))) for i, mark in enumerate(marks) if mark.start <= len(text)]
    places = sorted({0, len(text), *(place for _i, start, end in shown for place in (start, end))})
    pieces: list[Piece] = []

    def add(start: int, end: int, covering: list[int]) -> None:
        names = [f"{marks[i].kind} lane-{lane_of[i]}" for i in covering]
        titles = [f"{i + 1} {marks[i].words}" for i in covering]
        pieces.append(Piece(render(text[start:end]), title=" · ".join(titles), marks=names))

    for start, end in zip(places, [*places[1:], len(text)], strict=True):
        for i, first, last in shown:
            if first == last == start:
                add(start, start, [i])
                pieces[-1].ends = [(i + 1, marks[i].kind)]
        if end > start:
            add(start, end, [i for i, first, last in shown if first <= start and end <= last])
            pieces[-1].ends = [(i + 1, marks[i].kind) for i, first, last in shown if first < last == end]
    return pieces


def lanes(marks: Sequence[Mark]) -> list[int]:
    """A lane for each passage, in their order, so that passages that overlap are in different ones as long as there are enough."""
    ends: list[int] = []
    result = []
    for mark in marks:
        lane = next((lane for lane, end in enumerate(ends) if end <= mark.start), len(ends))
        ends[lane : lane + 1] = [mark.end]
        result.append(min(lane, LANES - 1))
    return result


def _quote(text: str, mark: Mark) -> Markup:
    return long(text[mark.start : mark.end], MOST_QUOTED) if mark.end > mark.start else Markup("(empty)")


def glyphs(line: Line) -> list[tuple[str, list[int], bool]]:
    """An answer as (text, its tokens, covers no character), in order. Tokens that share a character are one.

    Text is cut from the response by the tokens' offsets, so that an emoji of four tokens is itself. Where the offsets do
    not fit the tokens each token's own text is taken.
    """
    tokens, text = tokens_of(line), response_text(line)
    offsets: Any = line.get("offsets")
    if not _fits(offsets, len(tokens), len(text)):
        return [(token, [i], False) for i, token in enumerate(tokens)]
    pieces: list[tuple[str, list[int], bool]] = []
    last, end = -1, 0  # the last piece that covers characters, and where it ends
    begin = 0
    for i, (start, stop) in enumerate(offsets):
        if start == stop:
            pieces.append((tokens[i], [i], True))
        elif start < end:
            end = max(end, stop)
            pieces[last] = (text[begin:end], [*pieces[last][1], i], False)
        else:
            if start > end:
                pieces.append((text[end:start], [], False))
            pieces.append((text[start:stop], [i], False))
            last, begin, end = len(pieces) - 1, start, stop
    return [*pieces, (text[end:], [], False)] if end < len(text) else pieces


def _fits(offsets: Any, tokens: int, characters: int) -> bool:
    """Are these the offsets of `tokens` tokens: pairs in order, inside the text?"""
    if not isinstance(offsets, list) or len(offsets) != tokens:
        return False
    before = 0
    for pair in offsets:
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(end) is int for end in pair):
            return False
        if not before <= pair[0] <= pair[1] <= characters and pair[0] != pair[1]:
            return False
        before = pair[0] if pair[0] != pair[1] else before
    return True
