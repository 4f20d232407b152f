"""Numbers of spans against spans: scikit-learn and numpy as oracles, and what must hold for all sets."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score, precision_recall_fscore_support

from fgrl.measuring import span_numbers
from fgrl.measuring.span_numbers import GradedResponse, MarkedSpan, Place
from fgrl.measuring.statistics import Measured, estimate, value_of

NAMES = ["positive", "negative"]
SIDE = st.lists(st.sampled_from(["positive", "negative", None]), max_size=12)
PLACES = st.lists(
    st.builds(
        lambda start, size, label: Place(start, start + size, label, size),
        st.integers(0, 12), st.integers(0, 5), st.sampled_from(NAMES),
    ),
    max_size=6, unique=True,
)  # fmt: skip


@st.composite
def responses(draw: st.DrawFn) -> GradedResponse:
    left = draw(SIDE)
    right = draw(st.lists(st.sampled_from(["positive", "negative", None]), min_size=len(left), max_size=len(left)))
    return GradedResponse(left, right, draw(PLACES), draw(PLACES))


ROWS = st.lists(responses(), min_size=1, max_size=6)


def prompts(rows: Sequence[object]) -> list[str]:
    return [str(number) for number in range(len(rows))]


def values(numbers: dict[str, Measured]) -> dict[str, float | None]:
    return {name: value_of(number) for name, number in numbers.items()}


def same(one: float | None, other: float | None) -> bool:
    return one == other if one is None or other is None else math.isclose(one, other, abs_tol=1e-12)


@given(ROWS)
def test_units_agree_with_scikit_learn(rows: list[GradedResponse]) -> None:
    found = values(span_numbers.of_units(rows, prompts(rows), NAMES))
    left = [str(label) for row in rows for label in row.left]
    right = [str(label) for row in rows for label in row.right]
    for name in NAMES:
        if not left:
            assert found[f"{name}_f1"] is None
            continue
        expected = precision_recall_fscore_support(left, right, labels=[name], zero_division=np.nan)
        for kind, value in zip(("precision", "recall", "f1"), expected, strict=False):
            number = found[f"{name}_{kind}"]
            assert (number is None) == bool(np.isnan(value[0]))
            assert number is None or number == pytest.approx(value[0])
        index = found[f"{name}_overlap_index"]
        if index is None:
            assert name not in left
            assert name not in right
        else:
            assert index == pytest.approx(jaccard_score(left, right, labels=[name], average=None, zero_division=0)[0])
    assert found["length"] == pytest.approx(len(left) / len(rows))
    assert found["left_marked"] == pytest.approx((len(left) - left.count("None")) / len(rows))
    assert found["marked"] == pytest.approx((len(right) - right.count("None")) / len(rows))
    if left:
        assert found["neutral"] == pytest.approx(right.count("None") / len(right))
        assert found["left_neutral"] == pytest.approx(left.count("None") / len(left))


@given(ROWS)
def test_exchanging_the_sides_exchanges_precision_and_recall(rows: list[GradedResponse]) -> None:
    turned = [GradedResponse(row.right, row.left, row.right_spans, row.left_spans) for row in rows]
    one, other = (
        values(span_numbers.of_units(own, prompts(rows), NAMES) | span_numbers.of_spans(own, prompts(rows), NAMES, 0.9))
        for own in (rows, turned)
    )
    for name in NAMES:
        for kind in ("", "_exact", "_partial"):
            assert same(one[f"{name}{kind}_precision"], other[f"{name}{kind}_recall"])
        for kind in ("f1", "overlap_index", "exact"):
            assert same(one[f"{name}_{kind}"], other[f"{name}_{kind}"])
        assert same(one[f"{name}_left"], other[f"{name}_right"])


@given(ROWS)
def test_a_set_against_itself_is_perfect(rows: list[GradedResponse]) -> None:
    own = [GradedResponse(row.left, row.left, row.left_spans, row.left_spans) for row in rows]
    found = values(
        span_numbers.of_units(own, prompts(rows), NAMES) | span_numbers.of_spans(own, prompts(rows), NAMES, 1.0)
    )
    for name in NAMES:
        shares = [
            f"{name}_{kind}"
            for kind in ("precision", "recall", "f1", "overlap_index", "exact_precision", "exact_recall")
        ]
        assert {found[share] for share in shares} <= {1.0, None}
        assert found[f"{name}_partial"] == 0
        assert found[f"{name}_exact"] == found[f"{name}_left"] == found[f"{name}_right"]


def naive_overlap(one: Place, other: Place) -> float:
    a, b = set(range(one.start, one.end)), set(range(other.start, other.end))
    return len(a & b) / len(a | b) if a | b else 0.0


@given(responses())
def test_matches_of_spans_agree_with_sets_of_characters(row: GradedResponse) -> None:
    found = values(span_numbers.of_spans([row], ["a"], NAMES, 0.5))
    for name in NAMES:
        left = [span for span in row.left_spans if span.label == name]
        right = [span for span in row.right_spans if span.label == name]
        exact = {(s.start, s.end) for s in left} & {(s.start, s.end) for s in right}
        partial = [
            s for s in left if (s.start, s.end) not in exact and any(naive_overlap(s, other) > 0 for other in right)
        ]
        wide = [s for s in right if any(naive_overlap(s, other) >= 0.5 for other in left)]
        assert found[f"{name}_exact"] == len(exact)
        assert found[f"{name}_partial"] == len(partial)
        if right:
            assert found[f"{name}_overlap_50"] == pytest.approx(len(wide) / len(right))


def test_without_units_and_without_spans_nothing_is_defined() -> None:
    empty = GradedResponse([], [])
    found = span_numbers.of_units([empty], ["a"], NAMES) | span_numbers.of_spans([empty], ["a"], NAMES, 0.9)
    shares = {name: value_of(number) for name, number in found.items()}
    assert shares["positive_precision"] is None
    assert shares["neutral"] is None
    assert shares["unmatched"] is None
    assert shares["positive_left"] == 0
    neutral = GradedResponse(["positive", None], [None, None])
    found = values(span_numbers.of_units([neutral], ["a"], NAMES))
    assert (found["positive_precision"], found["positive_recall"], found["positive_f1"]) == (None, 0.0, 0.0)


@given(ROWS)
def test_runs_overlap_as_in_the_authors_release(rows: list[GradedResponse]) -> None:
    """Sets of places as the oracle; a response without an overlap counts 0."""

    def runs(side: Sequence[str | None], label: str) -> list[set[int]]:
        text = "".join("x" if own == label else " " for own in side)
        return [set(range(match.start(), match.end())) for match in re.finditer("x+", text)]

    found = values(span_numbers.of_units(rows, prompts(rows), NAMES))
    for label in NAMES:
        means = []
        for row in rows:
            left, right = runs(row.left, label), runs(row.right, label)
            best = [max((len(one & other) / len(one | other) for other in right), default=0) for one in left]
            means.append(np.mean([value for value in best if value] or [0.0]))
        assert same(found[f"{label}_run_overlap"], float(np.mean(means)))


def test_a_missing_response_is_counted_and_left_out() -> None:
    rows = [GradedResponse(["positive"], ["positive"]), None]
    found = values(span_numbers.of_units(rows, ["a", "b"], NAMES))
    assert (found["missing"], found["positive_recall"]) == (0.5, 1.0)


def test_what_marks_say_about_which_response_is_good() -> None:
    """By hand: `negative` is marked in 1 of 2 good responses and in 1 of 1 bad ones; the fifth is of neither kind."""
    bad, ok = ["negative", "negative", None, None], [None, None, None, None]
    rows = [
        GradedResponse(bad, ["negative", None, None, "negative"]),
        GradedResponse(ok, ["negative", None, None, None]),
        GradedResponse(ok, ok),
        None,
        GradedResponse(ok, ok),
    ]
    found = values(span_numbers.of_units(rows, prompts(rows), NAMES, [False, True, True, False, None]))
    assert (found["negative_in_good"], found["negative_in_bad"]) == (0.5, 1)
    assert (found["positive_in_good"], found["positive_in_bad"]) == (0, 0)
    assert (found["missing_good"], found["missing_bad"], found["missing"]) == (0, 0.5, 0.2)
    # 1 of 3 marked units is right; marking all 16 would have been right in 2
    assert found["negative_precision"] == pytest.approx(1 / 3)
    assert found["negative_precision_gain"] == pytest.approx(1 / 3 - 2 / 16)
    assert found["positive_precision_gain"] is None, "nothing is marked"
    unknown = values(span_numbers.of_units(rows, prompts(rows), NAMES))
    assert [unknown[name] for name in ("negative_in_bad", "missing_good")] == [None, None]


def test_unmatched_quotes() -> None:
    rows = [GradedResponse([], [], quotes=4, unmatched=1), GradedResponse([], []), GradedResponse([], [], quotes=6)]
    assert values(span_numbers.of_spans(rows, prompts(rows), [], 0.9))["unmatched"] == 0.1


def test_lengths_agree_with_numpy() -> None:
    sizes = [[3, 8, 5], [], [1], [12, 2]]
    prompts = ["a", "b", "b", "c"]
    spans = [MarkedSpan(prompt, "positive", size) for own, prompt in zip(sizes, prompts, strict=True) for size in own]
    found = span_numbers.of_lengths(spans, [*prompts, "d"], NAMES)
    flat = np.array([3, 8, 5, 1, 12, 2])
    expected = {
        "mean": flat.mean(), "min": 1, "max": 12, "median": np.median(flat), "q1": np.percentile(flat, 25),
        "q3": np.percentile(flat, 75),
    }  # fmt: skip
    for name, value in expected.items():
        assert value_of(found[f"positive_{name}"]) == pytest.approx(value)
        assert value_of(found[f"negative_{name}"]) is None
    interval = estimate(found["positive_mean"], resamples=400)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < flat.mean() < interval.high


def test_accuracy_by_length() -> None:
    sizes = [1, 2, 3, 4, 5, 6, 7, 8]
    right = [True, False, True, True, None, True, False, False]
    judged = [MarkedSpan("a", "positive", size, own) for size, own in zip(sizes, right, strict=True)]
    found = values(span_numbers.by_length(judged, ["a", "b"], ["positive"]))
    known = [(size, own) for size, own in zip(sizes, right, strict=True) if own is not None]
    edges = np.quantile([size for size, _ in known], [0.25, 0.5, 0.75])
    for quarter in range(4):
        inside = [own for size, own in known if np.searchsorted(edges, size, side="left") == quarter]
        assert found[f"positive_quarter_{quarter + 1}"] == pytest.approx(np.mean(inside))
    assert found["positive_all"] == pytest.approx(4 / 7)


def test_a_span_matches_one_of_its_own_label_only() -> None:
    row = GradedResponse(
        [],
        [],
        [Place(0, 4, "positive", 1)],
        [Place(3, 6, "positive", 1), Place(0, 4, "negative", 1), Place(4, 6, "positive", 1)],
    )
    found = span_numbers.right_side([None, row], ["a", "b"])
    assert [span.right for span in found] == [True, False, False]
    assert {(span.prompt, span.length) for span in found} == {("b", 1)}
