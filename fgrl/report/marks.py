"""Marks on an answer, whoever made them: tokens on which a criterion's verdict depends, passages that a critic or a
person marked.

An answer is drawn as pieces. Where marked passages overlap, the text is cut at all of their ends, and each piece is
underlined once for every passage that covers it, in lanes below each other. What a mark means is never shown by colour
alone: good passages have a straight line, poor ones a wavy line, others a dotted line, and each has a number that leads
to its reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from fgrl.evaluation.answer import Answer
from fgrl.report.escaping import MOST_CHARACTERS, long, render
from fgrl.results.text import duration, number, signed
from fgrl.types import Annotation, Response, Span
from fgrl.visible import quantity

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
    """A text in pieces with their marks."""

    pieces: list[Piece]
    left_out: int
    """Characters at the end that are not drawn."""
    passages: list[Passage]
    notes: list[str]
    """Remarks on what is not drawn."""


@dataclass
class ShownAnnotation:
    """An annotation of an answer by one critic or person."""

    by: str
    missing: bool
    """The critic was asked, and nothing usable came back."""
    critique: Markup | None
    """None: there is no comment on the whole answer."""
    text: MarkedText | None
    """None where the annotation is missing."""
    facts: list[tuple[str, str]]
    """Answers to questions about the whole response, and the time that it took."""


def annotations_of_answer(answer: Answer) -> list[ShownAnnotation]:
    """Return the annotations that rewards recorded about an answer, by the name of the reward, and all others."""
    shown = [annotation(answer.text, own, name) for name, own in answer.annotations.items()]
    return shown + annotations_of_response(answer.response)


def by_response(place: int) -> str:
    """Return the reason of a passage that a rewrite addresses, the response at this place of its sample."""
    return f"addressed by response {place + 1}"


def annotations_of_response(response: Response, addressed: Callable[[int], str] = by_response) -> list[ShownAnnotation]:
    """Return the annotations of a response of a sample that contain anything. `addressed` words the place of the
    rewrite that addresses a passage.
    """
    return [
        annotation(response.text, own, addressed=addressed)
        for own in response.annotations
        if own.spans or own.critique or own.answers
    ]


def annotation(
    text: str, recorded: Annotation | None, name: str = "", addressed: Callable[[int], str] = by_response
) -> ShownAnnotation:
    """Return an annotation of `text`; None is missing. `name` is that of the reward that asked for it."""
    by = " · ".join(dict.fromkeys(filter(None, (name, recorded.by if recorded else ""))))
    if recorded is None:
        return ShownAnnotation(by, True, None, None, [])
    facts = [
        (question, ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer))
        for question, answer in recorded.answers.items()
    ]
    if recorded.seconds is not None:
        facts.append(("time", duration(recorded.seconds)))
    marked = marked_text(text, recorded.spans, addressed)
    return ShownAnnotation(by, False, long(recorded.critique) if recorded.critique else None, marked, facts)


def marked_text(text: str, spans: Sequence[Span], addressed: Callable[[int], str] = by_response) -> MarkedText:
    """Return a text with its marked passages, numbered in their order. Those that do not fit the text are counted."""
    marks = sorted((span for span in spans if span.end <= len(text)), key=lambda span: (span.start, -span.end))
    drawn = marks[:MOST_MARKS]
    notes = []
    if unfit := len(spans) - len(marks):
        notes.append(f"{unfit} marked passage{'s do' if unfit > 1 else ' does'} not fit the text.")
    if more := len(marks) - len(drawn):
        notes.append(f"{quantity(more, 'more marked passage')} not drawn.")
    if not spans:
        notes.append("No passage is marked.")
    passages = [
        Passage(
            number, kind_of(span), words_of(span), _quote(text, span),
            [long(reason, MOST_REASON) for reason in reasons_of(span, addressed)],
        )
        for number, span in enumerate(drawn, 1)
    ]  # fmt: skip
    return MarkedText(cut(text[:MOST_CHARACTERS], drawn), max(0, len(text) - MOST_CHARACTERS), passages, notes)


def kind_of(span: Span) -> str:
    """Return a class of the stylesheet."""
    return "good" if span.label > 0 else "poor" if span.label < 0 else "neutral"


def words_of(span: Span) -> str:
    """`good`, or `poor (−0.5)` where the label is another number than +1, 0 or -1."""
    return kind_of(span) + ("" if span.label in (-1, 0, 1) else f" ({signed(span.label, 2)})")


def reasons_of(span: Span, addressed: Callable[[int], str] = by_response) -> list[str]:
    """Return the reasons for the mark, and what else is recorded of it."""
    reasons = [*span.reasons, *([span.note] if span.note else [])]
    if span.weight != 1:
        reasons.append(f"weight {number(span.weight)}")
    if span.answered_by is not None:
        reasons.append(addressed(span.answered_by))
    return reasons


def cut(text: str, marks: Sequence[Span]) -> list[Piece]:
    """Return the text in pieces that no passage begins or ends inside of, each with the passages that cover it.

    `marks` are in order; a passage beyond the end of `text` is left out, one that exceeds it ends with it. An empty
    passage is a piece without text.
    """
    lane_of = lanes(marks)
    shown = [(i, mark.start, min(mark.end, len(text))) for i, mark in enumerate(marks) if mark.start <= len(text)]
    places = sorted({0, len(text), *(place for _i, start, end in shown for place in (start, end))})
    pieces: list[Piece] = []

    def add(start: int, end: int, covering: list[int]) -> None:
        names = [f"{kind_of(marks[i])} lane-{lane_of[i]}" for i in covering]
        titles = [f"{i + 1} {words_of(marks[i])}" for i in covering]
        pieces.append(Piece(render(text[start:end]), title=" · ".join(titles), marks=names))

    for start, end in zip(places, [*places[1:], len(text)], strict=True):
        for i, first, last in shown:
            if first == last == start:
                add(start, start, [i])
                pieces[-1].ends = [(i + 1, kind_of(marks[i]))]
        if end > start:
            add(start, end, [i for i, first, last in shown if first <= start and end <= last])
            pieces[-1].ends = [(i + 1, kind_of(marks[i])) for i, first, last in shown if first < last == end]
    return pieces


def lanes(marks: Sequence[Span]) -> list[int]:
    """Return a lane for each passage, in their order, so that passages that overlap are in different ones as long as
    there are enough.
    """
    ends: list[int] = []
    result = []
    for mark in marks:
        lane = next((lane for lane, end in enumerate(ends) if end <= mark.start), len(ends))
        ends[lane : lane + 1] = [mark.end]
        result.append(min(lane, LANES - 1))
    return result


def _quote(text: str, mark: Span) -> Markup:
    return long(text[mark.start : mark.end], MOST_QUOTED) if mark.end > mark.start else Markup("(empty)")


def glyphs(answer: Answer) -> list[tuple[str, list[int], bool]]:
    """Return an answer as (text, its tokens, covers no character), in order. Tokens that share a character are one.

    Text is cut from the response by the tokens' offsets, so that an emoji of four tokens is itself. Where the offsets
    do not fit the tokens each token's own text is taken.
    """
    tokens, text, offsets = answer.tokens or ([answer.text] if answer.text else []), answer.text, answer.offsets
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


def _fits(offsets: Sequence[tuple[int, int]], tokens: int, characters: int) -> bool:
    """Return True if these are the offsets of `tokens` tokens: pairs in order, inside the text."""
    before = 0
    for start, end in offsets:
        if not before <= start <= end <= characters and start != end:
            return False
        before = start if start != end else before
    return len(offsets) == tokens
