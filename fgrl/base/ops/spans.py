"""Character spans of a text and the tokens that cover them; conversion of span rewards to token rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from fgrl.base import lazy
from fgrl.base.ops.statistics import check_choice

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")

TokenPolicy = Literal["overlap", "inside", "start", "words"]
POLICIES = get_args(TokenPolicy)
TOKEN_POLICY: TokenPolicy = "words"
"""Default rule for the conversion of spans to tokens."""
Conflict = Literal["poor", "good", "cancel"]
CONFLICTS = get_args(Conflict)
Within = Literal["uniform", "linear_decay", "token_importance"]
WITHIN = get_args(Within)
SpanSpread = Literal["even", "each", "last"]
SPREADS = get_args(SpanSpread)


class Span(Protocol):
    """A marked passage: characters `start` to `end`, a label, and the weight of the passage."""

    start: int
    end: int
    label: float
    weight: float


def tokens_of_spans(
    spans: Sequence[Span],
    offsets: Sequence[tuple[int, int]],
    text: str,
    policy: TokenPolicy = TOKEN_POLICY,
    conflict: Conflict | None = None,
    *,
    partial: bool = False,
) -> list[list[int]]:
    """Return the indices of the tokens of each span, in order.

    1. Conflicts are resolved on characters: where spans of different signs (of label x weight) meet, the characters stay with
       the lowest sign (`poor`), with the highest (`good`), or with neither of good and poor (`cancel`). None: spans of
       different signs share characters, as spans of the same sign always do.
    2. A token belongs to a span when all its characters are left to the span, apart from white space at its beginning
       (`words`) or without exception (`inside`); when its first character is (`start`); or when any is (`overlap`). In most
       vocabularies the space before a word belongs to the word's token: `inside` and `start` lose the first word of a span.

    So a token that lies across the place where good and poor meet belongs to neither, except by `start` and `overlap`:
    Text2Grad's appendix L gives such tokens no reward.

    offsets: characters [start, end) of each token in `text`, as `fgrl.rollouts.offsets` gives them: tokens that hold
    parts of one character (the bytes of an emoji) all cover it. A token that covers none (start = end: a special token,
    the mark before a first word) is in no span. partial: a span that no whole token belongs to has the tokens that
    share a character with it.
    """
    check_choice("policy", policy, POLICIES)
    if conflict is not None:
        check_choice("conflict", conflict, CONFLICTS)
    counted = [_counted(extent, text, policy) for extent in offsets]
    tokens = []
    for characters in _characters(spans, len(text), conflict):
        near = [t for t, (start, end) in enumerate(offsets) if not characters.isdisjoint(range(start, end))]
        own = [t for t in near if policy == "overlap" or characters.issuperset(counted[t])]
        tokens.append(near if partial and not own else own)
    return tokens


def _counted(extent: tuple[int, int], text: str, policy: TokenPolicy) -> range:
    """Return the characters of a token that its span has to contain."""
    start, end = extent
    if policy == "words":  # a token of white space alone has no word in it, and counts as it is
        start = end - len(text[start:end].lstrip() or text[start:end])
    return range(start, min(start + 1, end) if policy == "start" else end)


def _characters(spans: Sequence[Span], end: int, conflict: Conflict | None) -> list[set[int]]:
    """Return the characters before `end` that each span keeps after conflicts are resolved."""
    signs = [_sign(span.label * span.weight) for span in spans]
    every = [set(range(span.start, min(span.end, end))) for span in spans]
    by_sign = {
        sign: set().union(*(own for own, s in zip(every, signs, strict=True) if s == sign)) for sign in set(signs)
    }
    return [
        own.difference(*(taken for other, taken in by_sign.items() if _yields(sign, other, conflict)))
        for own, sign in zip(every, signs, strict=True)
    ]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _yields(own: int, other: int, conflict: Conflict | None) -> bool:
    """Return True if a span with the sign `own` loses the characters that it shares with a span of the sign `other`."""
    if conflict is None:
        return False
    return own * other < 0 if conflict == "cancel" else (other < own if conflict == "poor" else other > own)


def _resolve(values: Sequence[float], conflict: Conflict) -> float:
    """Reduce the values (at least one) of a token to one."""
    if conflict == "cancel":
        return 0.0 if min(values) < 0 < max(values) else sum(values) / len(values)
    return min(values) if conflict == "poor" else max(values)


def spans_to_tokens(
    spans: Sequence[Span],
    offsets: Sequence[tuple[int, int]],
    text: str,
    policy: TokenPolicy = TOKEN_POLICY,
    conflict: Conflict = "poor",
    *,
    partial: bool = False,
) -> Tensor:
    """Return the label of each token, float [T], from labelled character spans of the response; 0 outside of spans.

    `tokens_of_spans` describes the tokens of a span. If a token has several spans, it gets the lowest label (`poor`),
    the highest (`good`), or, with `cancel`, 0 if their signs differ and otherwise their mean.

    A span may have no token at all: count those with `uncovered_spans` and report them.
    """
    every = tokens_of_spans(spans, offsets, text, policy, conflict, partial=partial)
    values = _values_of_tokens(
        len(offsets), every, [[span.label] * len(own) for span, own in zip(spans, every, strict=True)]
    )
    return torch.tensor([_resolve(own, conflict) if own else 0.0 for own in values], dtype=torch.float32)


def _values_of_tokens(
    count: int, tokens: Sequence[Sequence[int]], values: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Return the values of each of `count` tokens, from the tokens of each span and their values in the span."""
    of_token: list[list[float]] = [[] for _ in range(count)]
    for own, paid in zip(tokens, values, strict=True):
        for t, value in zip(own, paid, strict=True):
            of_token[t].append(value)
    return of_token


@dataclass(frozen=True)
class SpanRewards:
    """Rewards of the tokens of a response, from its spans."""

    token: Tensor
    """Reward of each token, float [T]."""
    marked: Tensor
    """Mask of the tokens of spans, bool [T]. Their reward may still be 0: if the label is 0, or if good and poor spans
    overlap.
    """
    uncovered: list[int]
    """Indices of the spans that have no token."""
    overruled: list[int]
    """Indices of the spans that lost all their tokens to spans of another sign."""


def span_rewards(
    spans: Sequence[Span],
    offsets: Sequence[tuple[int, int]],
    text: str,
    policy: TokenPolicy = TOKEN_POLICY,
    conflict: Conflict = "poor",
    *,
    spread: SpanSpread = "even",
    within: Within = "uniform",
    unmarked: float = 0.0,
    importance: Sequence[float] | None = None,
) -> SpanRewards:
    """Convert rewards of spans to rewards of tokens. The value of a span is label x weight.

    1. each span's tokens, by `policy` and `conflict` (see `tokens_of_spans`)
    2. their weights in it, by `within`: 1 (`uniform`), 1 - (i-1) * 0.9/(n-1) for the i-th of n (`linear_decay`, Text2Grad,
       appendix I.1), or `importance` [T] (`token_importance`)
    3. the value on the tokens, by `spread`: shared out by their weights (`even`), or all of it on the last one (`last`). Tokens of
       several spans add up, and a span that contains no whole token has those that share a character with it. So the total
       is the sum of the values of the spans that keep a character after conflicts, whatever the tokenizer
       Or value x weight for each token (`each`, delta_t of Text2Grad's section 3.3): a token in several spans has the lowest
       value (`poor`), the highest (`good`), or 0 where signs differ and else the mean (`cancel`), and a span that contains no
       whole token is lost
    4. `unmarked` for tokens that share no character with a span; 0 for those that cover no character at all
    """
    check_choice("within", within, WITHIN)
    check_choice("spread", spread, SPREADS)
    # 1.
    each = spread == "each"
    every = tokens_of_spans(spans, offsets, text, policy, conflict, partial=not each)
    before = tokens_of_spans(spans, offsets, text, policy, partial=not each)
    # 2. and 3.
    paid = [
        [span.label * span.weight * share for share in _shares(_weights(own, within, importance), spread)]
        for span, own in zip(spans, every, strict=True)
    ]
    values = _values_of_tokens(len(offsets), every, paid)
    touched = {t for own in tokens_of_spans(spans, offsets, text, "overlap") for t in own}

    def reward(t: int) -> float:
        if values[t]:
            return _resolve(values[t], conflict) if each else math.fsum(values[t])
        # 4.
        start, end = offsets[t]
        return 0.0 if start >= end or t in touched else unmarked

    marked = {t for own in before for t in own}
    return SpanRewards(
        torch.tensor([reward(t) for t in range(len(offsets))], dtype=torch.float32),
        torch.tensor([t in marked for t in range(len(offsets))], dtype=torch.bool),
        uncovered=[number for number, own in enumerate(before) if not own],
        overruled=[number for number, own in enumerate(every) if before[number] and not own],
    )


def _shares(weights: Sequence[float], spread: SpanSpread) -> list[float]:
    """Return the share of a span's value that each of its tokens gets."""
    if spread == "last":
        return [0.0] * (len(weights) - 1) + [1.0] * bool(weights)
    whole = math.fsum(weights) if spread == "even" else 1.0
    return [weight / whole for weight in weights]


def _weights(tokens: Sequence[int], within: Within, importance: Sequence[float] | None) -> list[float]:
    """Return the weights of the tokens of a span, in order."""
    if within == "token_importance":
        if importance is None:
            raise ValueError("`token_importance` needs the importance of each token")
        return [float(importance[t]) for t in tokens]
    step = 0.9 / (len(tokens) - 1) if within == "linear_decay" and len(tokens) > 1 else 0.0
    return [1.0 - place * step for place in range(len(tokens))]


def fading_weights(tokens: int, after: float) -> Tensor:
    """Return 1 / (1 + exp(clip(t - after, -10, 6))) for the tokens t = 0, 1, ..., [T]: about 1 at first, 1/2 at
    `after`, then close to 0.

    Text2Grad's release weights the rewards of summaries in this way, with 54 for tokens counted from 1, which is
    `after=53`; the paper has no such weight.
    """
    return torch.sigmoid(-(torch.arange(tokens) - after).clamp(-10, 6))


def uncovered_spans(
    spans: Sequence[Span],
    offsets: Sequence[tuple[int, int]],
    text: str,
    policy: TokenPolicy = TOKEN_POLICY,
    *,
    partial: bool = False,
) -> list[int]:
    """Return the indices of the spans without tokens: empty spans, spans of text that the tokens do not reach, and
    spans of a part of a token.
    """
    tokens = tokens_of_spans(spans, offsets, text, policy, partial=partial)
    return [number for number, own in enumerate(tokens) if not own]


def without_characters(labels: Tensor, offsets: Sequence[tuple[int, int]]) -> Tensor:
    """Return `labels` [T] in which tokens without characters get 1 if every other label is above 0, and 0 otherwise.

    No span contains such tokens (the end of a response, the mark before a first word), but a criterion on the whole
    response includes them ("Rubrics to Tokens", appendix C.3: all tokens): with 0, they alone would be outliers.
    """
    bare = torch.tensor([start >= end for start, end in offsets], dtype=torch.bool, device=labels.device)
    rest = labels[~bare]
    whole = bool(len(rest)) and bool((rest > 0).all())
    return torch.where(bare, torch.full_like(labels, float(whole)), labels)


def overlaps(source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Return the pairs of tokens of two tokenizations of one text that share a character: indices [N] into `source` and
    into `target`.

    Offsets are characters [start, end), in order: neither starts nor ends decrease. A token without characters is in no
    pair.
    """
    pairs: list[tuple[int, int]] = []
    first = 0
    for i, (start, end) in enumerate(source):
        while first < len(target) and target[first][1] <= start:
            first += 1
        j = first
        while j < len(target) and target[j][0] < end:
            if min(end, target[j][1]) > max(start, target[j][0]):
                pairs.append((i, j))
            j += 1
    indices = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return indices[:, 0], indices[:, 1]
