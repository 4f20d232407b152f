"""Rewards of tokens from spans: which tokens, their weights in a span, spans that contradict each other."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.base import ops
from fgrl.types import Span

#        The  cat  sat  .   (and an end-of-sequence token that covers no character)
OFFSETS = [(0, 3), (3, 7), (7, 11), (11, 12), (12, 12)]
TEXT = "The cat sat."

each = partial(ops.span_rewards, spread="each")
"""Each token of a span has its value, as in the paper."""


def rewards(*spans: Span, **settings: Any) -> list[float]:
    return each(spans, OFFSETS, TEXT, **settings).token.tolist()


def close(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-6)


def test_a_span_on_one_token_is_a_one_hot_reward() -> None:
    one = each([Span(start=3, end=7, label=-1)], OFFSETS, TEXT)
    assert one.token.tolist() == [0, -1, 0, 0, 0]
    assert one.marked.tolist() == [False, True, False, False, False]
    assert one.uncovered == []


def test_a_token_that_crosses_a_boundary_has_no_reward_and_a_span_without_a_token_is_on_record() -> None:
    assert rewards(Span(start=4, end=12), policy="inside") == [0, 0, 1, 1, 0]
    assert rewards(Span(start=4, end=12)) == rewards(Span(start=3, end=12)) == [0, 1, 1, 1, 0]
    assert rewards(Span(start=5, end=12)) == [0, 0, 1, 1, 0]
    assert rewards(Span(start=4, end=12), policy="overlap") == [0, 1, 1, 1, 0]
    assert each([Span(start=4, end=6), Span(start=0, end=3)], OFFSETS, TEXT).uncovered == [0]


def test_label_and_weight_of_a_span_multiply() -> None:
    assert rewards(Span(start=0, end=3, label=-2.0, weight=0.25)) == [-0.5, 0, 0, 0, 0]


def test_unmarked_tokens_are_those_that_share_nothing_with_a_span_and_cover_something() -> None:
    """Code: wrong -1, improvable 0, the rest +1. The token that a span cuts is neither."""
    wrong, improvable = Span(start=5, end=11, label=-1.0), Span(start=11, end=12, label=0.0)
    found = each([wrong, improvable], OFFSETS, TEXT, unmarked=1.0)
    assert found.token.tolist() == [1, 0, -1, 0, 0]
    assert found.marked.tolist() == [False, False, True, True, False]
    assert rewards(unmarked=1.0) == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_linear_decay_is_the_closed_form(count: int) -> None:
    """r_i = 1 - (i-1) * 0.9/(n-1), negated for poor spans; the only token of a span has 1."""
    offsets = [(i, i + 1) for i in range(count + 2)]
    for label in (1.0, -1.0):
        found = each(
            [Span(start=1, end=count + 1, label=label)], offsets, "x" * (count + 2), within="linear_decay"
        ).token
        wanted = [label * (1 - (i - 1) * 0.9 / (count - 1)) if count > 1 else label for i in range(1, count + 1)]
        assert found.tolist() == close(0, *wanted, 0)
    alone = each([Span(start=1, end=count + 1)], offsets, "x" * (count + 2), within="linear_decay")
    assert alone.token[1] == 1


def test_token_importance_weights_each_token_by_its_own() -> None:
    importance = [0.2, 1.0, 1.0, 0.2, 0.2]
    span = Span(start=0, end=7, label=-1.0)
    assert rewards(span, within="token_importance", importance=importance) == close(-0.2, -1, 0, 0, 0)
    with pytest.raises(ValueError, match="needs the importance of each token"):
        rewards(span, within="token_importance")


def test_several_spans_on_a_token_after_their_weights() -> None:
    good, poor = Span(start=0, end=11, label=1.0), Span(start=7, end=12, label=-1.0)
    assert rewards(good, poor) == [1, 1, -1, -1, 0]
    assert rewards(good, poor, conflict="good") == [1, 1, 1, -1, 0]
    cancelled = each([good, poor], OFFSETS, TEXT, conflict="cancel", unmarked=1.0)
    assert cancelled.token.tolist() == [1, 1, 0, -1, 0]
    assert cancelled.marked.tolist() == [True, True, True, True, False], "a token of two spans is marked all the same"
    decayed = Span(start=3, end=12, label=1.0)
    assert rewards(good, decayed, within="linear_decay", conflict="cancel") == close(
        1, (0.55 + 1) / 2, (0.1 + 0.55) / 2, 0.1, 0
    )


def test_the_value_of_a_span_is_shared_out_or_on_its_last_token() -> None:
    whole = Span(start=0, end=12, label=-0.5)
    assert rewards(whole, spread="even") == close(-0.125, -0.125, -0.125, -0.125, 0)
    assert rewards(whole, spread="last") == [0, 0, 0, -0.5, 0]
    decayed = rewards(whole, spread="even", within="linear_decay")
    assert decayed == close(*(-0.5 * weight / 2.2 for weight in (1, 0.7, 0.4, 0.1)), 0)
    both = rewards(whole, Span(start=4, end=7, label=-0.25), spread="even")
    assert both == close(-0.125, -0.375, -0.125, -0.125, 0), "values of spans that agree add up"
    assert rewards(Span(start=5, end=6, label=-1.0), spread="even") == [0, -1, 0, 0, 0], "a part of a token is not lost"
    met = ops.span_rewards([Span(start=0, end=11), Span(start=3, end=7, label=-0.5)], OFFSETS, TEXT)
    assert met.token.tolist() == [0.5, -0.5, 0.5, 0, 0]
    gone = ops.span_rewards([Span(start=4, end=7), Span(start=0, end=11, label=-0.5)], OFFSETS, TEXT)
    assert (float(gone.token.sum()), gone.overruled) == (pytest.approx(-0.5), [0])


def test_a_span_that_loses_its_tokens_to_the_other_sign_is_on_record() -> None:
    """Before the weights within spans: the place in a span is counted among the tokens that are left to it."""
    good, poor = Span(start=4, end=7), Span(start=0, end=11, label=-1.0)
    found = each([good, poor], OFFSETS, TEXT)
    assert (found.token.tolist(), found.overruled, found.uncovered) == ([-1, -1, -1, 0, 0], [0], [])
    decayed = each([good, poor], OFFSETS, TEXT, conflict="good", within="linear_decay")
    assert (decayed.token.tolist(), decayed.overruled) == (close(-1, 1, -0.1, 0, 0), [])
    across = each([Span(start=3, end=11), Span(start=4, end=7, label=-1.0)], OFFSETS, TEXT, "inside")
    assert (across.token.tolist(), across.marked.tolist()[:3]) == ([0, 0, 1, 0, 0], [False, True, True])


def test_an_unknown_choice_is_refused() -> None:
    for choice in ("policy", "conflict", "within", "spread"):
        with pytest.raises(ValueError, match=choice):
            ops.span_rewards([], OFFSETS, TEXT, **{choice: "other"})  # type: ignore[arg-type]


def test_fading_weights_are_those_of_the_release() -> None:
    weights = ops.fading_weights(80, after=53).tolist()
    assert weights == close(*(1 / (1 + math.exp(min(max(count - 48 - 6, -10), 6))) for count in range(1, 81)))


LABELS = st.sampled_from([1.0, -1.0, 0.0])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_without_overlaps_each_token_has_the_label_of_the_span_that_contains_it(sizes: list[int], data: Any) -> None:
    """Three labels, tokens of any width; the oracle knows one label for each character."""
    ends = torch.tensor(sizes).cumsum(0).tolist()
    offsets = list(zip([0, *ends[:-1]], ends, strict=True))
    cuts = data.draw(st.lists(st.integers(0, ends[-1]), max_size=6))
    places = sorted({0, *cuts, ends[-1]})
    spans, of_character = [], dict.fromkeys(range(ends[-1]), (None, 0.0))
    for number, (start, end) in enumerate(pairwise(places)):
        if data.draw(st.booleans()):
            label = data.draw(LABELS)
            spans.append(Span(start=start, end=end, label=label))
            of_character |= dict.fromkeys(range(start, end), (number, label))
    unmarked = data.draw(st.sampled_from([0.0, 1.0]))
    found = each(spans, offsets, "x" * ends[-1], unmarked=unmarked)
    for t, (start, end) in enumerate(offsets):
        own = {of_character[place] for place in range(start, end)}
        whole = len(own) == 1 and next(iter(own))[0] is not None
        assert bool(found.marked[t]) == whole
        if whole:
            assert found.token[t] == next(iter(own))[1]
        elif own == {(None, 0.0)}:
            assert found.token[t] == unmarked
        else:
            assert found.token[t] == 0
    plain = ops.spans_to_tokens(spans, offsets, "x" * ends[-1])
    assert torch.equal(found.token[found.marked], plain[found.marked])
