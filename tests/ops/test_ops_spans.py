"""Labels of tokens from spans of characters."""

from __future__ import annotations

import math
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


def labels(spans: list[Span], **choices: str | bool) -> list[float]:
    return ops.spans_to_tokens(spans, OFFSETS, TEXT, **choices).tolist()  # type: ignore[arg-type]


def test_a_token_belongs_to_a_span_when_it_lies_inside_but_for_the_space_before_a_word():
    assert labels([Span(start=4, end=7)]) == [0, 1, 0, 0, 0]
    assert labels([Span(start=2, end=7, label=-1)]) == [0, -1, 0, 0, 0]
    assert labels([Span(start=3, end=3)]) == [0, 0, 0, 0, 0]
    assert labels([Span(start=0, end=12, label=0.5)]) == [0.5, 0.5, 0.5, 0.5, 0]
    assert labels([]) == [0, 0, 0, 0, 0]


def test_neighbours_that_only_touch_do_not_overlap():
    assert labels([Span(start=3, end=7)]) == [0, 1, 0, 0, 0]


def test_token_policies():
    span = [Span(start=2, end=9)]
    assert labels(span, policy="overlap") == [1, 1, 1, 0, 0]
    assert labels(span, policy="inside") == [0, 1, 0, 0, 0]
    assert labels(span, policy="start") == [0, 1, 1, 0, 0]


def test_the_policy_of_words_passes_over_the_space_before_them():
    text, offsets = "a good novel here", [(0, 1), (1, 6), (6, 12), (12, 17)]
    span, wider = Span(start=2, end=12), Span(start=1, end=13)  # "good novel", and with the spaces around it

    def marked(policy: str, *spans: Span) -> list[float]:
        return ops.spans_to_tokens(spans, offsets, text, policy).tolist()  # type: ignore[arg-type]

    assert marked("words", span) == marked("words", wider) == [0, 1, 1, 0]
    assert marked("inside", span) == marked("start", span) == [0, 0, 1, 0], "the first word's token begins with a space"
    assert marked("overlap", wider) == [0, 1, 1, 1]
    assert marked("words", Span(start=3, end=9)) == [0, 0, 0, 0]
    assert ops.uncovered_spans([span, Span(start=3, end=9)], offsets, text, "words") == [1]
    # a token of white space alone has no word in it, and counts as it is
    blank = ops.spans_to_tokens([Span(start=1, end=3)], [(0, 1), (1, 3), (3, 4)], "a \n b")
    assert blank.tolist() == [0, 1, 0]


def test_a_span_inside_one_token_has_it_only_where_parts_count():
    inside, across = Span(start=5, end=6), Span(start=5, end=9)
    assert labels([inside]) == labels([across]) == [0, 0, 0, 0, 0]
    assert labels([inside], partial=True) == [0, 1, 0, 0, 0]
    assert labels([across], partial=True) == [0, 1, 1, 0, 0]
    assert labels([Span(start=2, end=7)], partial=True) == [0, 1, 0, 0, 0], "it has a whole token"
    assert ops.uncovered_spans([inside, Span(start=12, end=12)], OFFSETS, TEXT, partial=True) == [1]


def test_a_token_without_characters_is_in_no_span_whatever_comes_after_it():
    mark = [(0, 0), (0, 2), (2, 2), (2, 4)]  # the mark before a first word; a special token in the middle
    assert ops.spans_to_tokens([Span(start=0, end=4)], mark, "abcd").tolist() == [0, 1, 0, 1]
    assert [part.tolist() for part in ops.overlaps(mark, [(0, 1), (1, 4)])] == [[1, 1, 3], [0, 1, 1]]


def test_tokens_without_characters_are_marked_where_all_others_are():
    mark = [(0, 0), (0, 2), (2, 2), (2, 4)]
    assert ops.without_characters(torch.tensor([0.0, 1.0, 0.0, 0.5]), mark).tolist() == [1, 1, 1, 0.5]
    assert ops.without_characters(torch.tensor([0.0, 1.0, 0.0, 0.0]), mark).tolist() == [0, 1, 0, 0]
    assert ops.without_characters(torch.tensor([1.0]), [(0, 0)]).tolist() == [0], "silence is not relevant"


def test_bytes_of_one_character_go_with_it():
    emoji = [(0, 2), (2, 3), (2, 3), (2, 3), (3, 4)]  # three tokens make up the character 2
    assert ops.spans_to_tokens([Span(start=2, end=3)], emoji, "ab🎉c").tolist() == [0, 1, 1, 1, 0]
    assert ops.spans_to_tokens([Span(start=3, end=4)], emoji, "ab🎉c").tolist() == [0, 0, 0, 0, 1]


def test_conflicts():
    spans = [Span(start=0, end=7, label=1), Span(start=4, end=11, label=-1)]
    assert labels(spans, conflict="poor") == [1, -1, -1, 0, 0]
    assert labels(spans, conflict="good") == [1, 1, -1, 0, 0]
    assert labels(spans, conflict="cancel") == [1, 0, -1, 0, 0]
    agreeing = [Span(start=0, end=3, label=0.5), Span(start=0, end=3, label=1)]
    assert labels(agreeing, conflict="cancel")[0] == 0.75


def test_spans_that_cover_no_token_are_found():
    spans = [Span(start=0, end=3), Span(start=12, end=15), Span(start=5, end=5), Span(start=4, end=5)]
    assert ops.uncovered_spans(spans, OFFSETS, TEXT, "overlap") == [1, 2]
    assert ops.uncovered_spans(spans, OFFSETS, TEXT) == [1, 2, 3]


def test_a_token_across_the_place_where_good_and_poor_meet_gets_nothing():
    text = "It is a very good day today."
    offsets = [(0, 2), (2, 5), (5, 7), (7, 12), (12, 17), (17, 21), (21, 27), (27, 28)]  # words with the space before
    start = text.index("good")
    spans = [Span(start=6, end=21), Span(start=start, end=start + 4, label=-1)]

    def good_day(policy: str, conflict: str) -> list[float]:
        return ops.spans_to_tokens(spans, offsets, text, policy, conflict).tolist()[2:7]  # type: ignore[arg-type]

    assert good_day("inside", "poor") == [0, 1, 0, 1, 0], "the space of ` good` is good, the word is poor"
    assert good_day("words", "poor") == [1, 1, -1, 1, 0]
    assert good_day("words", "good") == [1, 1, 1, 1, 0]
    assert good_day("inside", "cancel") == [0, 1, 0, 1, 0]
    assert good_day("words", "cancel") == [1, 1, 0, 1, 0]


def _sign(span: Span) -> int:
    return 0 if span.label == 0 else 1 if span.label > 0 else -1


BEATS = {"poor": lambda a, b: a < b, "good": lambda a, b: a > b, "cancel": lambda a, b: {a, b} == {1, -1}}


@settings(max_examples=500, deadline=None)
@given(
    text=st.text("ab ", min_size=6, max_size=9),
    cuts=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    raw=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 9), st.sampled_from([1, -1, 0, 2, -3])), min_size=2, max_size=4
    ),
    conflict=st.sampled_from(["poor", "good", "cancel"]),
    policy=st.sampled_from(["words", "inside", "start", "overlap"]),
)
def test_conflicts_are_resolved_on_characters(text: str, cuts: list[int], raw: Any, conflict: Any, policy: Any) -> None:
    """Against a reference that asks of each character of a token whose it is."""
    spans = [Span(start=start, end=start + size, label=label) for start, size, label in raw]
    offsets = list(pairwise(sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})))

    def is_of(span: Span, place: int) -> bool:
        here = [other for other in spans if other.start <= place < other.end]
        return span in here and not any(BEATS[conflict](_sign(other), _sign(span)) for other in here)

    for (start, end), label in zip(offsets, ops.spans_to_tokens(spans, offsets, text, policy, conflict), strict=True):
        places = list(range(start, end))
        if policy == "start":
            places = places[:1]
        if policy == "words" and text[start:end].strip():
            while text[places[0]] == " ":
                places.pop(0)
        share = any if policy == "overlap" else all
        owners = [span.label for span in spans if share(is_of(span, place) for place in places)]
        signs = {math.copysign(1, own) for own in owners if own}
        if not owners or (conflict == "cancel" and len(signs) == 2):
            assert label == 0
        else:
            wanted = {"poor": min(owners), "good": max(owners), "cancel": sum(owners) / len(owners)}[conflict]
            assert label == pytest.approx(wanted)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_spans_against_characters(data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, 30), min_size=2, max_size=10, unique=True)))
    offsets = list(pairwise(cuts))
    start = data.draw(st.integers(0, 30))
    span = Span(start=start, end=start + data.draw(st.integers(0, 8)), label=2)
    marked = set(range(span.start, span.end))
    expected = [2.0 if marked & set(range(*offset)) else 0.0 for offset in offsets]
    assert ops.spans_to_tokens([span], offsets, "x" * 40, "overlap").tolist() == expected
    assert ops.uncovered_spans([span], offsets, "x" * 40, "overlap") == ([] if any(expected) else [0])
