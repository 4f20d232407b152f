"""A text in tokens with all known facts about it: one record, which the terminal (`terminal`) and the page (`drawing`)
draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fgrl.runs.results.text import number, signed

if TYPE_CHECKING:
    from fgrl.measuring.answer import Answer, Attribution
    from fgrl.types import Annotation, Response, Span, Turn

VERDICTS = {True: ("kept", "✓ kept"), False: ("broken", "✗ broken"), None: ("missing", "? missing")}
"""Stylesheet class and text of a verdict on a criterion."""
PASSES = {True: "✓ passes", False: "✗ fails", None: "? undecided:"}
"""Text of a verdict on a whole answer, before the name of its source."""
RESPONSE = ("response", "eos", "environment")
"""Kinds of the tokens of a response; in a conversation some are the environment's."""


@dataclass
class MarkedTokens:
    """Sequence of tokens with facts about each token and about the text. Lists about tokens are as long as `tokens`."""

    title: str
    tokens: list[str]
    """Text of each token, decoded alone."""
    kinds: list[str]
    """Kind of each token: "prompt", "response", "eos", "environment" or "pad"."""
    segments: list[int] | None = None
    """Index of the segment of each token, -1 if it is in none."""
    values: list[float | None] | None = None
    """Number of each token; None if it has none. Values of the prompt and of padding are not shown."""
    note: str = ""
    what: str = "reward"
    """Name of the values."""
    facts: list[tuple[str, str]] = field(default_factory=list)
    """Names and numbers of the whole response."""
    criteria: list[Attribution] = field(default_factory=list)
    """Criteria of the response; relevances are of the tokens of kind "response" and "eos"."""
    verdicts: dict[str, bool | None] = field(default_factory=dict)
    """True if the response passes, by the name of the verdict's source; None if it is undecided."""
    annotations: list[tuple[str, Annotation | None]] = field(default_factory=list)
    """Annotations with marked passages of `text` and reasons, each with the name of the reward whose critic was asked
    ("" if it came with the response); None if the critic's answer is missing.
    """
    layers: dict[str, list[float | None]] = field(default_factory=dict)
    """Further numbers of each token, by name: the "advantage" of the loss, and columns. None if a token has none."""
    text: str = ""
    """Text of the response; empty if only its tokens are known."""
    offsets: list[tuple[int, int]] = field(default_factory=list)
    """Start and end in `text` of the characters that each token covers; empty if they are unknown."""
    violations: list[Span] = field(default_factory=list)
    """Passages of `text` that break a rule."""
    turn: list[int] = field(default_factory=list)
    """Turn of a conversation in which each token was drawn, -1 for tokens that were not drawn; empty outside
    conversations.
    """
    turns: list[Turn] = field(default_factory=list)
    """Rewards and answers of the environment for each turn."""

    def __post_init__(self) -> None:
        columns = {
            "kinds": self.kinds,
            "segments": self.segments,
            "values": self.values,
            "offsets": self.offsets or None,
            "turns": self.turn or None,
        }
        for name, column in [*columns.items(), *((f"numbers of {name}", own) for name, own in self.layers.items())]:
            if column is not None and len(column) != len(self.tokens):
                raise ValueError(f"{self.title}: {len(self.tokens)} tokens, but {len(column)} {name}")
        drawn = len(self.response())
        for criterion in self.criteria:
            if criterion.relevance is not None and len(criterion.relevance) != drawn:
                raise ValueError(
                    f"{self.title}: {drawn} response tokens, but {len(criterion.relevance)} relevances of {criterion.text!r}"
                )

    @classmethod
    def of(cls, answer: Answer, values: str = "", **more: Any) -> MarkedTokens:
        """Return a recorded answer with the numbers of one of its rewards. Columns that do not fit its tokens are cut,
        or filled with None.
        """
        count = len(answer.tokens)
        turn = answer.turn if len(answer.turn) == count else []
        offsets = answer.offsets if len(answer.offsets) == count else []
        ends = {count - 1} if answer.response.finished else set()
        if turn and offsets:  # a turn may have no end token
            last = (place for place in range(count) if turn[place : place + 2] != [turn[place]] * 2)
            ends = {place for place in last if offsets[place][0] == offsets[place][1]}
        kinds = [
            "environment" if number < 0 else "eos" if place in ends else "response"
            for place, number in enumerate(turn or [0] * count)
        ]
        own, ids = answer.token_rewards.get(values, []), segments_of(answer, values)
        return cls(**{
            "title": answer.model,
            "tokens": answer.tokens,
            "kinds": kinds,
            "segments": [*ids, *[-1] * count][:count] if ids else None,
            "values": [*own, *[None] * count][:count] if own else None,
            "text": answer.text,
            "offsets": offsets,
            "violations": [span for spans in answer.violations.values() for span in spans],
            "annotations": [*answer.annotations.items(), *recorded(answer.response)],
            "verdicts": answer.verdicts,
            "turn": turn,
            "turns": answer.turns,
        } | more)  # fmt: skip

    def response(self) -> list[int]:
        """Return the places of the tokens of the response, including its end."""
        return [place for place, kind in enumerate(self.kinds) if kind in RESPONSE]

    def sums(self) -> dict[int, float]:
        """Return the sum of the numbers of each segment. A segment without numbers is left out."""
        totals: dict[int, float] = {}
        for value, segment in zip(self.values or [], self.segments or [], strict=False):
            if segment >= 0 and value is not None:
                totals[segment] = math.fsum((totals.get(segment, 0.0), value))
        return totals

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        marked = [
            {"reward": name, "missing": own is None} | (own.model_dump() if own else {})
            for name, own in self.annotations
        ]
        broken = [span.model_dump() for span in self.violations]
        return asdict(self) | {"annotations": marked, "violations": broken}


def recorded(response: Response) -> list[tuple[str, Annotation | None]]:
    """Return the annotations that came with a response and are not empty."""
    return [("", own) for own in response.annotations if own.spans or own.critique or own.answers]


def segments_of(answer: Answer, reward: str) -> list[int]:
    """Return the segment of each token for a reward; without a reward, the segments of any reward."""
    return answer.segments.get(reward) or ([] if reward else next(iter(answer.segments.values()), []))


def kind_of(span: Span) -> str:
    """Return the kind of a mark: "good", "poor" or "neutral"."""
    return "good" if span.label > 0 else "poor" if span.label < 0 else "neutral"


def words_of(span: Span) -> str:
    """Return a description of the label, `good`, or `poor (−0.5)` if the label is not +1, 0 or -1."""
    return kind_of(span) + ("" if span.label in (-1, 0, 1) else f" ({signed(span.label, 2)})")


def reasons_of(span: Span, chain: bool = False) -> list[str]:
    """Return the reasons for the mark, and other recorded facts about it. chain: rewrites are numbered as its steps."""
    reasons = [*span.reasons, *([span.note] if span.note else [])]
    if span.weight != 1:
        reasons.append(f"weight {number(span.weight)}")
    if (place := span.answered_by) is not None:
        reasons.append(f"addressed in step {place}" if chain else f"addressed by response {place + 1}")
    return reasons


def nested(spans: Sequence[Span]) -> list[int]:
    """Return the places of marked passages in the order of the text, outer passages first."""
    return sorted(range(len(spans)), key=lambda i: (spans[i].start, -spans[i].end))


def in_order(spans: Sequence[Span]) -> list[Span]:
    """Return marked passages in the order of `nested`."""
    return [spans[i] for i in nested(spans)]
