"""Segments: where they begin and end, what they hold, and giving it back to their tokens."""

from __future__ import annotations

from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.base import ops


def bools(*rows: str) -> torch.Tensor:
    """ "x.x" as [True, False, True]."""
    return torch.tensor([[c == "x" for c in row] for row in rows])


def test_inside_leaves_out_padding_and_the_end_of_sequence():
    mask = bools("xxxx.", "xxxxx", "x....", ".....")
    eos = bools("...x.", ".....", "x....", ".....")
    assert torch.equal(ops.inside_segments(mask, eos, False), bools("xxx..", "xxxxx", "x....", "....."))
    assert torch.equal(ops.inside_segments(mask, eos, True), mask)


def test_a_start_opens_a_segment_and_the_token_before_it_closes_one():
    ids = ops.segment_ids(bools("..x.x.", "x.....", "......", "xxxxxx"), bools("xxxxx.", "xxx...", "xx....", "......"))
    assert ids.tolist() == [[0, 0, 1, 1, 2, -1], [0, 0, 0, -1, -1, -1], [0, 0, -1, -1, -1, -1], [-1] * 6]
    assert torch.equal(ops.segment_ends(ids), bools(".x.xx.", "..x...", ".x....", "......"))


def test_one_token():
    ids = ops.segment_ids(bools("x"), bools("x"))
    assert ids.tolist() == [[0]]
    assert ops.segment_ends(ids).tolist() == [[True]]
    assert ops.locations(ids).tolist() == [[1.0]]


def test_starts_outside_are_ignored():
    assert ops.segment_ids(bools("xx.xx"), bools(".xxx.")).tolist() == [[-1, 0, 0, 1, -1]]


def test_reductions_read_the_tokens_they_say():
    ids = torch.tensor([[0, 0, 0, 1, 2, 2, -1], [0, 0, -1, -1, -1, -1, -1]])
    x = torch.tensor([[1.0, 2, 3, 4, 5, 6, 99], [7, 8, 99, 99, 99, 99, 99]])
    for how, expected in {
        "last": [[3, 4, 6], [8, 0, 0]],
        "sum": [[6, 4, 11], [15, 0, 0]],
        "mean": [[2, 4, 5.5], [7.5, 0, 0]],
    }.items():
        out, valid = ops.to_segments(x, ids, how)
        assert out.tolist() == expected, how
        assert torch.equal(valid, bools("xxx", "x.."))


def test_locations_count_from_one_and_end_at_one():
    valid = bools("xxxx", "xx..", "x...", "....")
    expected = [[0.25, 0.5, 0.75, 1], [0.5, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert ops.locations(valid).tolist() == expected
    ids = torch.tensor([[0, 0, 1, 2, 3, -1], [0, 1, 1, 1, -1, -1], [0, 0, -1, -1, -1, -1], [-1] * 6])
    assert ops.locations(ids).tolist() == expected


def test_spreads():
    ids = torch.tensor([[0, 0, 0, 0, 1, -1], [0, 1, 1, -1, -1, -1], [-1] * 6])
    x = torch.tensor([[2.0, -3.0], [1.0, 5.0], [7.0, 7.0]])
    assert ops.spread(x, ids, "even").tolist() == [[0.5, 0.5, 0.5, 0.5, -3, 0], [1, 2.5, 2.5, 0, 0, 0], [0] * 6]
    assert ops.spread(x, ids, "repeat").tolist() == [[2, 2, 2, 2, -3, 0], [1, 5, 5, 0, 0, 0], [0] * 6]
    assert ops.spread(x, ids, "last").tolist() == [[0, 0, 0, 2, -3, 0], [1, 0, 5, 0, 0, 0], [0] * 6]


def test_a_segment_without_a_reward_is_an_error():
    with pytest.raises(ValueError, match="segment 2 has no reward"):
        ops.spread(torch.zeros(1, 2), torch.tensor([[0, 1, 2]]), "even")


def test_scores_of_responses():
    x = torch.tensor([[1.0, 2.0, 6.0], [4.0, 8.0, float("nan")], [float("nan")] * 3])
    valid = bools("xxx", "xx.", "...")
    assert ops.aggregate_segments(x, valid, "mean").tolist() == [3, 6, 0]
    assert ops.aggregate_segments(x, valid, "sum").tolist() == [9, 12, 0]
    assert ops.aggregate_segments(x, valid, "last").tolist() == [6, 8, 0]


def test_unknown_choices_are_named():
    ids = torch.tensor([[0]])
    with pytest.raises(ValueError, match="even, repeat, last, not 'all'"):
        ops.spread(torch.zeros(1, 1), ids, "all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="last, mean, sum, not 'max'"):
        ops.to_segments(torch.zeros(1, 1), ids, "max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mean, sum, last, not 'max'"):
        ops.aggregate_segments(torch.zeros(1, 1), ids >= 0, "max")  # type: ignore[arg-type]


def test_no_tokens_at_all():
    ids = torch.zeros(2, 0, dtype=torch.long)
    rewards, valid = ops.to_segments(torch.zeros(2, 0), ids, "last")
    assert rewards.shape == valid.shape == (2, 1)
    assert not valid.any()
    assert ops.spread(rewards, ids, "even").shape == (2, 0)


# -- against a slow reading of the definition --------------------------------------------------------------------------


@st.composite
def cut_batches(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, list[list[list[int]]]]:
    """starts, inside [B,T] and, row by row, the segments as lists of token positions."""
    width = draw(st.integers(1, 9))
    starts, inside, segments = [], [], []
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(0, width))
        row = draw(st.lists(st.booleans(), min_size=width, max_size=width))
        found: list[list[int]] = []
        for t in range(length):
            if t == 0 or row[t]:
                found.append([])
            found[-1].append(t)
        starts.append(row)
        inside.append([t < length for t in range(width)])
        segments.append(found)
    return torch.tensor(starts), torch.tensor(inside), segments


@settings(max_examples=150, deadline=None)
@given(cut_batches())
def test_ids_ends_and_locations_by_definition(case):
    starts, inside, segments = case
    ids = ops.segment_ids(starts, inside)
    ends, place = ops.segment_ends(ids), ops.locations(ids)
    for row, found in enumerate(segments):
        inside_ids = [(key, t) for t, key in enumerate(ids[row].tolist()) if key >= 0]
        assert [[t for _, t in group] for _, group in groupby(inside_ids, lambda item: item[0])] == found
        assert ends[row].nonzero().flatten().tolist() == [segment[-1] for segment in found]
        expected = [(i + 1) / len(found) for i in range(len(found))]
        assert place[row, : len(found)].tolist() == expected
        assert not place[row, len(found) :].any()


@settings(max_examples=150, deadline=None)
@given(cut_batches(), st.integers(0, 1000))
def test_spreads_keep_the_sums_of_segments(case, seed):
    starts, inside, segments = case
    ids = ops.segment_ids(starts, inside)
    columns = max(*map(len, segments), 1) if len(segments) > 1 else max(len(segments[0]), 1)
    x = torch.randn(len(segments), columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rewards = torch.where(ops.to_segments(inside.double(), ids, "sum")[1], x, 0.0)
    for how in ("even", "last"):
        back, _ = ops.to_segments(ops.spread(x, ids, how), ids, "sum")
        torch.testing.assert_close(back, rewards)
    lengths, _ = ops.to_segments(torch.ones_like(ids, dtype=torch.float64), ids, "sum")
    repeated = ops.spread(x, ids, "repeat")
    torch.testing.assert_close(ops.to_segments(repeated, ids, "sum")[0], rewards * lengths)
    assert not repeated[~inside].any()
    if (lengths > 1).any():
        assert not torch.equal(ops.to_segments(repeated, ids, "sum")[0], rewards)


@settings(max_examples=100, deadline=None)
@given(cut_batches())
def test_reductions_by_definition(case):
    starts, inside, segments = case
    ids = ops.segment_ids(starts, inside)
    x = torch.arange(1.0, ids.numel() + 1).view(ids.shape)
    rules = {
        "last": lambda values: values[-1],
        "sum": sum,
        "mean": lambda v: sum(v) / len(v),
    }
    for how, rule in rules.items():
        out, valid = ops.to_segments(x, ids, how)
        for row, found in enumerate(segments):
            expected = [rule([x[row, t].item() for t in segment]) for segment in found]
            torch.testing.assert_close(out[row][valid[row]], torch.tensor(expected), msg=how)
            assert not out[row][~valid[row]].any()


def test_the_gradient_of_a_reduction_reaches_the_tokens_it_read():
    ids = torch.tensor([[0, 0, 1, 1, 1, -1]])
    for how, expected in {
        "last": [[0, 1, 0, 0, 1, 0]],
        "sum": [[1, 1, 1, 1, 1, 0]],
        "mean": [[0.5, 0.5, 1 / 3, 1 / 3, 1 / 3, 0]],
    }.items():
        x = torch.zeros(1, 6, requires_grad=True)
        ops.to_segments(x, ids, how)[0].sum().backward()
        torch.testing.assert_close(x.grad, torch.tensor(expected, dtype=torch.float32), msg=how)


def test_a_hole_in_a_segment_does_not_end_it_twice():
    ids = torch.tensor([[0, -1, 0, 1, -1]])
    assert ops.segment_ends(ids).tolist() == [[False, False, True, True, False]]
    assert ops.to_segments(torch.tensor([[1.0, 9, 2, 3, 9]]), ids, "sum")[0].tolist() == [[3, 3]]
