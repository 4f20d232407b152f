"""Tokens with marks as HTML: each token in the colour of its number, segments in brackets, marked passages underlined.

A text is split at each start and end of a token or a marked passage. If passages overlap, each piece is underlined once
for every passage that covers it, in lanes below each other. The meaning of a mark is never shown by colour alone: good
passages have a straight line, poor ones a wavy line, others a dotted line, and each has a number that leads to its
reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from markupsafe import Markup

from fgrl.base.visible import quantity
from fgrl.measuring.answer import Answer
from fgrl.pages.report.escaping import MOST_CHARACTERS, long, render
from fgrl.pages.report.marked_tokens import MarkedTokens, in_order, kind_of, nested, reasons_of, words_of
from fgrl.runs.results.text import duration, number, signed
from fgrl.types import Span

LEVELS = 5
"""Number of colours on each side of the middle."""
MOST_TOKENS = 320
"""Maximum number of tokens that are drawn of an answer without marked passages. For an answer with marked passages, the
tokens of the first `MOST_CHARACTERS` are drawn.
"""
LANES = 3
"""Maximum number of underlines below each other. If more passages overlap, the last lane holds several."""
MOST_MARKS = 40
"""Maximum number of passages of an annotation that are drawn, from the start of the text."""
MOST_QUOTED = 90
"""Maximum number of characters of a passage that are repeated beside its reasons."""
MOST_REASON = 600
"""Maximum number of characters of a reason."""


@dataclass(frozen=True)
class Scale:
    """Colour scale of one number: the middle is neutral, and values at a distance of `reach` or more have the strongest
    colour.
    """

    reward: str
    middle: float = 0.0
    reach: float = 1.0
    why: str = ""
    zero: str = "z"
    """Stylesheet class of neutral values."""
    strong: float = math.inf
    """Value from which tokens are underlined, whatever their colour. If it is set, there are no values below the
    middle.
    """
    words: Callable[[float, int], str] = signed

    def level(self, value: float | None) -> str:
        """Return a class of the stylesheet: "n5" .. "n1", "z", "p1" .. "p5", or "" without a value."""
        if value is None:
            return ""
        step = max(-LEVELS, min(LEVELS, round((value - self.middle) / self.reach * LEVELS)))
        return f"{'p' if step > 0 else 'n'}{abs(step)}" if step else self.zero

    def legend(self) -> list[tuple[str, str]]:
        """Return (class, value in the middle of the class), from low to high."""
        steps = range(-LEVELS if math.isinf(self.strong) else 0, LEVELS + 1)
        values = [self.middle + abs(self.reach) * step / LEVELS for step in steps]
        return [(self.level(value), self.words(value, 2)) for value in values]


def scale(reward: str, values: Sequence[float], *, around_zero: bool = False) -> Scale:
    """Return a scale on which zero is neutral, or the median if nearly all values are on one side of zero and differ.
    `around_zero`: zero is always neutral, because the sign has a meaning, as for a critic's labels and for an
    advantage.
    """
    if not values:
        return Scale(reward, why="no values")
    ordered = sorted(values)
    low, high = _quantile(ordered, 0.05), _quantile(ordered, 0.95)
    middle, why = 0.0, "neutral is 0"
    if not around_zero and low < high and (low > 0 or high < 0):
        middle = _quantile(ordered, 0.5)
        why = f"nearly all values lie on one side of 0, so neutral is their median, {number(middle)}"
    reach = _quantile(sorted(abs(value - middle) for value in ordered), 0.95)
    return Scale(reward, middle, reach if reach > 0 else 1.0, why)


def scales_of(reward: str, items: Sequence[MarkedTokens], around_zero: bool) -> tuple[Scale, Scale]:
    """Return the colour scales of the tokens and of the segments of some answers."""
    values = [value for item in items for value in item.values or [] if value is not None]
    sums = [total for item in items for total in item.sums().values()]
    return scale(reward, values, around_zero=around_zero), scale(reward, sums, around_zero=around_zero)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))]


@dataclass
class Passage:
    """A marked passage in the list beside the answer."""

    number: int
    kind: str
    words: str
    quote: Markup
    reasons: list[Markup]


@dataclass
class ShownAnnotation:
    """An annotation of an answer by one critic or person."""

    by: str
    missing: bool
    """True if the critic was asked and returned nothing usable."""
    critique: Markup | None = None
    """Comment on the whole answer; None if there is none."""
    passages: list[Passage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Remarks on parts that are not drawn."""
    facts: list[tuple[str, str]] = field(default_factory=list)
    """Answers to questions about the whole response, and the annotation time."""


@dataclass
class Drawing:
    """An answer as a page shows it, with its marks: its text once for each number of its tokens, one of which is
    visible.
    """

    layers: list[Markup]
    annotations: list[ShownAnnotation]

    @classmethod
    def of(
        cls, items: Sequence[MarkedTokens], scales: Sequence[tuple[Scale | None, Scale | None]], *, chain: bool = False
    ) -> Drawing:
        """Return a drawing. items: the same answer with one number each. scales: scale of the tokens and scale of the
        segments for each item.
        """
        marked, spans = listed(items[0], chain)
        return cls([draw(item, *pair, spans) for item, pair in zip(items, scales, strict=True)], marked)


@dataclass
class ShownAnswer:
    """An answer as a page shows it."""

    title: str
    drawing: Drawing | None = None
    """Drawing of the answer; None if the model has no answer to this prompt."""
    facts: list[tuple[str, str]] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    """Total of the token rewards, one for each reward; empty if no token has one."""
    warnings: list[str] = field(default_factory=list)
    verdicts: list[tuple[str, str]] = field(default_factory=list)
    """(class of the stylesheet, text) of each verdict."""
    notes: list[str] = field(default_factory=list)
    """Notes on parts of the answer that are not shown."""
    later: list[tuple[str, Markup]] = field(default_factory=list)
    """(role, text) of the turns after it in the conversation."""


def of_conversation(answer: Answer) -> tuple[list[tuple[str, str]], list[str]]:
    """Return facts and warnings of a conversation with an environment; both are empty for other answers."""
    facts = [
        ("turns", number(len(answer.turns))),
        ("environment", signed(math.fsum(t.reward for t in answer.turns), 3)),
    ]
    failed = [] if answer.lost is None else [f"the environment failed: {answer.lost[:MOST_REASON]}"]
    return facts if answer.turns else [], failed


@dataclass
class Exchange:
    """A prompt with answers."""

    turns: list[tuple[str, Markup]]
    """(role, text) of each turn; the role is "" if the prompt is plain text."""
    answers: list[ShownAnswer]
    id: str = ""
    is_first: bool = True
    """True for the first prompts of the file; the others are shown because of their rank."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Place of the exchange in each order other than the file's."""
    comparisons: list[tuple[str, Markup | None]] = field(default_factory=list)
    """Comparisons of the answers in words, with the reason."""
    more: int = 0
    """Number of annotated answers that are not shown."""

    @property
    def classes(self) -> str:
        """Return the stylesheet classes that order the exchanges."""
        places = (f"{order}-{place}" for order, place in self.ranks.items())
        return " ".join(["exchange", *([] if self.is_first else ["extra"]), *places])


def listed(item: MarkedTokens, chain: bool = False) -> tuple[list[ShownAnnotation], list[Span]]:
    """Return the annotations of critics and people, and the passages that are drawn, in the order of their numbers.
    Passages that do not fit the text are counted.
    """
    shown, every = [], list[Span]()
    for name, recorded in item.annotations:
        by = " · ".join(dict.fromkeys(filter(None, (name, recorded.by if recorded else ""))))
        if recorded is None:
            shown.append(ShownAnnotation(by, True))
            continue
        marks = in_order([span for span in recorded.spans if span.end <= len(item.text)])
        notes = [] if recorded.spans else ["No passage is marked."]
        if unfit := len(recorded.spans) - len(marks):
            notes.append(f"{unfit} marked passage{'s do' if unfit > 1 else ' does'} not fit the text.")
        if more := len(marks) - MOST_MARKS:
            notes += [f"{quantity(more, 'more marked passage')} not drawn."] if more > 0 else []
        if marks and item.tokens and not fits(item):
            notes.append("Which tokens they are is not known.")
        passages = [
            Passage(
                len(every) + place, kind_of(span), words_of(span),
                long(item.text[span.start : span.end], MOST_QUOTED) or Markup("(empty)"),
                [long(reason, MOST_REASON) for reason in reasons_of(span, chain)],
            )
            for place, span in enumerate(marks[:MOST_MARKS], 1)
        ]  # fmt: skip
        every += marks[:MOST_MARKS]
        facts = [
            (question, ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer))
            for question, answer in recorded.answers.items()
        ]
        facts += [] if recorded.seconds is None else [("time", duration(recorded.seconds))]
        critique = long(recorded.critique) if recorded.critique else None
        shown.append(ShownAnnotation(by, False, critique, passages, notes, facts))
    return shown, every


@dataclass
class Piece:
    """Piece of text that is drawn as one unit: no token and no passage begins or ends inside it."""

    text: str
    places: list[int]
    """Places of its tokens; several tokens share a character of an emoji."""
    marks: list[int] = field(default_factory=list)
    """Places of the passages that cover it, the outermost first."""
    ends: list[int] = field(default_factory=list)
    """Places of the passages that end at the end of the piece."""
    breaks: bool = False
    """True if it is part of a violation of a rule."""
    outside: bool = False
    """True if it is a token that covers no character, such as the end-of-sequence token."""


def pieces(item: MarkedTokens, spans: Sequence[Span] = ()) -> list[Piece]:
    """Return the text in pieces. An empty passage is a piece without text.

    The response is split by the tokens' offsets, so that an emoji of four tokens is drawn as one character. If the
    offsets do not fit the tokens, each token's own text is used, and no passage is drawn.
    """
    if not fits(item):
        return [Piece(token, [i]) for i, token in enumerate(item.tokens)]
    size, order = len(item.text), nested(spans)
    owners: list[list[int]] = [[] for _ in item.text]
    others: dict[int, list[Piece]] = {}
    """Pieces that cover no character, by place."""
    for i in order:
        if spans[i].start == spans[i].end:
            others.setdefault(spans[i].start, []).append(Piece("", [], [i], [i]))
    for i, (start, end) in enumerate(item.offsets):
        for at in range(start, end):
            owners[at].append(i)
        if start == end:
            others.setdefault(start, []).append(Piece(item.tokens[i], [i], outside=True))
    known = [*item.offsets, *((span.start, span.end) for span in [*spans, *item.violations])]
    cuts = sorted({0, size, *(at for pair in known for at in pair if at < size)})
    found: list[Piece] = []
    for start, end in pairwise([*cuts, size]):
        found += others.get(start, [])
        if end > start:
            marks = [i for i in order if spans[i].start <= start and end <= spans[i].end]
            broken = any(span.start <= start and end <= span.end for span in item.violations)
            ends = [i for i in marks if end == min(size, spans[i].end)]
            found.append(Piece(item.text[start:end], owners[start], marks, ends, broken))
    return found


def fits(item: MarkedTokens) -> bool:
    """Return True if the characters of each token are known: the offsets are pairs in order, inside the text."""
    inside = all(0 <= start <= end <= len(item.text) for start, end in item.offsets)
    covering = [(start, end) for start, end in item.offsets if start < end]
    return inside and covering == sorted(covering) and len(item.offsets) == len(item.tokens)


def lanes(marks: Sequence[Span]) -> list[int]:
    """Return a lane for each passage, in their order. Overlapping passages are in different lanes as long as there are
    enough lanes.
    """
    ends: list[int] = []
    result = []
    for mark in marks:
        lane = next((lane for lane, end in enumerate(ends) if end <= mark.start), len(ends))
        ends[lane : lane + 1] = [mark.end]
        result.append(min(lane, LANES - 1))
    return result


def draw(
    item: MarkedTokens, tint: Scale | None = None, bracket: Scale | None = None, spans: Sequence[Span] = (), start: int = 0
) -> Markup:  # fmt: skip
    """Return the response as HTML. tint and bracket: colour scales of tokens and of segments. start: place of the first
    token to draw.
    """
    # 1. what of it is drawn
    count, stop = len(item.tokens), start + MOST_TOKENS
    if spans:
        stop = max(stop, sum(left < MOST_CHARACTERS for left, _right in item.offsets))
    shown, at = list[Piece](), 0
    for piece in pieces(item if count else replace(item, text=item.text[:MOST_CHARACTERS]), spans):
        at = piece.places[0] if piece.places else at
        shown += [piece] if start <= at < stop else []
    # 2. passages that end behind it end with it
    seen = {i for piece in shown for i in piece.ends}
    cut_off = {i: piece for piece in shown for i in piece.marks if i not in seen}
    for i, last in cut_off.items():
        last.ends.append(i)
    order = nested(spans)
    lines = dict(zip(order, lanes([spans[i] for i in order]), strict=True))
    # 3. turn by turn, and segment by segment
    parts, spoken = [_more("{} tokens before … ", start)], -1
    for author, own in groupby(shown, lambda piece: _author(item, piece)):
        spoken = max(spoken, author)
        parts.append(_observed(item, spoken) if author < 0 else _spoken(item, author))
        parts += [] if author < 0 else _segments(item, list(own), tint, bracket, spans, lines)
    if shown and item.turns and spoken == len(item.turns) - 1:
        parts.append(_observed(item, spoken))
    parts += [] if shown else [Markup('<span class="note">(nothing)</span>')]
    parts.append(_more(" … {} tokens more", count - stop))
    parts.append(_more(" … {} characters more", 0 if count else len(item.text) - MOST_CHARACTERS))
    return Markup("").join(parts)


def _author(item: MarkedTokens, piece: Piece) -> int:
    return item.turn[piece.places[0]] if item.turn and piece.places else 0


def _spoken(item: MarkedTokens, number: int) -> Markup:
    """Return the heading of a turn of the model, with the rewards that the environment gave for it; empty outside
    conversations.
    """
    if not item.turn:
        return Markup("")
    turn = item.turns[number] if number < len(item.turns) else None
    reward = f" · reward {signed(turn.reward, 3)}" if turn else ""
    return Markup('<b class="who">turn {}{}</b>').format(number + 1, reward)


def _observed(item: MarkedTokens, number: int) -> Markup:
    """Return the environment's answer to a turn; empty if there is none."""
    turn = item.turns[number] if 0 <= number < len(item.turns) else None
    if turn is None or not (turn.observation or turn.error):
        return Markup("")
    problem = (
        Markup(' <span class="warn">{}</span>').format(long(turn.error, MOST_REASON)) if turn.error else Markup("")
    )
    answer = Markup('<b class="who">environment{}</b><span class="observed">{}</span>')
    return answer.format(problem, long(turn.observation))


def _segments(
    item: MarkedTokens, shown: Sequence[Piece], tint: Scale | None, bracket: Scale | None, spans: Sequence[Span], lines: dict[int, int]
) -> list[Markup]:  # fmt: skip
    """Return pieces with the brackets of their segments."""
    sums, parts = item.sums(), list[Markup]()
    for segment, group in groupby(shown, lambda piece: _segment(item, piece)):
        inside = list(group)
        if segment is not None and inside[0].text[:1] == " " and inside[0].text[1:2].strip():
            parts.append(Markup(" "))  # before the bracket, so that words do not touch
            inside[0].text = inside[0].text[1:]
        drawn = Markup("").join(_drawn(item, piece, tint, spans, lines) for piece in inside)
        if segment is not None and bracket is not None and segment in sums:
            total, size = sums[segment], len({place for piece in inside for place in piece.places})
            title = f"segment {segment + 1}: {item.what} {signed(total)} on {size} tokens"
            inner = drawn + Markup("<sub>{}</sub>").format(signed(total, 2))
            drawn = Markup('<span class="seg {}" title="{}">{}</span>').format(bracket.level(total), title, inner)
        elif segment is not None:
            drawn = Markup('<span class="seg">{}</span>').format(drawn)
        parts.append(drawn)
    return parts


def _more(words: str, count: int) -> Markup:
    return Markup('<span class="note">{}</span>').format(words.format(count)) if count > 0 else Markup("")


def _segment(item: MarkedTokens, piece: Piece) -> int | None:
    index = item.segments[piece.places[0]] if item.segments and piece.places else -1
    return index if index >= 0 else None


def _drawn(
    item: MarkedTokens, piece: Piece, tint: Scale | None, spans: Sequence[Span], lines: dict[int, int]
) -> Markup:  # fmt: skip
    """Return a piece with its underlines, and the numbers of the passages that end at its end."""
    classes, words = _token(item, piece, tint) if piece.places else ([], [])
    words += [f"{i + 1} {words_of(spans[i])}" for i in piece.marks]
    html, title = render(piece.text), Markup(' title="{}"').format(" · ".join(words)) if words else ""
    if piece.places:
        shown = html or Markup('<b class="hidden">·</b>')
        html, title = Markup('<i class="t {}"{}>{}</i>').format(" ".join(filter(None, classes)), title, shown), ""
    for i in reversed(piece.marks):
        kind = f"{kind_of(spans[i])} lane-{lines[i]}"
        html, title = Markup('<span class="mark {}"{}>{}</span>').format(kind, title, html), ""
    numbers = (Markup('<sup class="number {}">{}</sup>').format(kind_of(spans[i]), i + 1) for i in piece.ends)
    return html + Markup("").join(numbers)


def _token(item: MarkedTokens, piece: Piece, tint: Scale | None) -> tuple[list[str], list[str]]:
    """Return the classes of the stylesheet, and the text that is shown while the mouse is over the token."""
    first, last, count = piece.places[0] + 1, piece.places[-1] + 1, len(item.tokens)
    known = sorted({value for i in piece.places if item.values and (value := item.values[i]) is not None})
    segment, ends = _segment(item, piece), item.kinds[last - 1] == "eos"
    words = [f"tokens {first} to {last} of {count}" if last > first else f"token {first} of {count}"]
    classes = []
    if known and tint:
        value = max(known, key=lambda value: abs(value - tint.middle))
        classes = [tint.level(value), *(["strong"] if value >= tint.strong else [])]
    if known:
        texts = [(tint.words if tint else signed)(value, 3) for value in (known[0], known[-1])]
        words.append(f"{item.what} {' to '.join(dict.fromkeys(texts))}")
    elif item.values is not None:
        words.append(f"no {item.what}")
    words += [] if segment is None else [f"segment {segment + 1}"]
    words += ["ends the answer"] if ends and segment is None else []
    classes += ["end"] if piece.outside or (ends and segment is None) else []
    if piece.breaks:
        classes.append("breaks")
        words.append("breaks a rule")
    return classes, words
