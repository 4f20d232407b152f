"""Columns: what their declarations do with them on the way from a rollout to the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
import torch
from column_records import Lengths, WeightedRewards, records
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fgrl.base.mergeable import as_numbers
from fgrl.training import gather
from fgrl.training.units import EncodedUnits, RolloutUnits
from fgrl.types import (
    Advantages,
    Annotation,
    Batch,
    Column,
    Rewards,
    Rollout,
    Segmentable,
    TensorRows,
    Tokens,
    per_criterion_token,
    per_response,
    per_row,
    per_token,
)
from fgrl.types.tensors import concatenate, declarations

PAD, EOS = 9, 2


lengths = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=6)
"""Prompt tokens, response tokens and criteria of each response."""


def assert_same(found: TensorRows, wanted: TensorRows, mask: Tensor) -> None:
    for item in fields(wanted):
        one, two = getattr(found, item.name), getattr(wanted, item.name)
        if item.name == "criterion":  # beyond the end of a response nobody reads it
            one, two = (torch.where(mask[:, None], value, 0.0) for value in (one, two))
        if isinstance(two, Tensor):
            assert torch.equal(one.nan_to_num(-1e9), two.nan_to_num(-1e9)), item.name
            assert one.dtype == two.dtype, item.name
        elif item.name == "metrics":
            assert as_numbers(one) == as_numbers(two)
        else:
            assert one == two, item.name


@given(lengths, st.integers(1, 5))
def test_parts_of_processes_are_the_whole(sizes: Lengths, cut: int) -> None:
    """Every declared column, of the library and of the user, with the parts padded to widths of their own."""
    cut = min(cut, len(sizes))
    parts = [records(part, first) for part, first in ((sizes[:cut], 0), (sizes[cut:], cut)) if part]
    for part in parts[1:]:
        part[0].group = part[0].group + cut
    wholes = records(sizes)
    for place, whole in enumerate(wholes):
        joined = concatenate([part[place] for part in parts])
        assert type(joined) is type(whole)
        assert_same(joined, whole, wholes[0].mask)


@given(lengths, st.data())
def test_a_dropped_row_takes_all_its_columns_with_it(sizes: Lengths, data: Any) -> None:
    """Rewards that are missing: what remains is what the other responses had, in their order."""
    missing = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    rollout, rewards, _advantages = records(sizes)
    rewards.response = torch.where(torch.tensor(missing), math.nan, rewards.response)
    kept_rollout, kept, dropped = gather.drop_missing(rollout, rewards)
    left = [i for i, gone in enumerate(missing) if not gone]
    assert dropped == sum(missing)
    assert kept.notes == [rewards.notes[i] for i in left]
    assert kept.annotations == [Annotation(critique=f"critique {i}") if i % 3 else None for i in left]
    assert kept_rollout.texts == [rollout.texts[i] for i in left]
    for record, before in ((kept_rollout, rollout), (kept, rewards)):
        for name, (_column, value) in record.tensors().items():
            assert torch.equal(value.nan_to_num(-1e9), getattr(before, name)[left].nan_to_num(-1e9)), name


def expected(sizes: Lengths) -> dict[str, Callable[[int], list[float]]]:
    """Of each column the real values in a row."""
    return {
        "weight": lambda n: [100.0 * n + t + 0.5 for t in range(sizes[n][1])],
        "kind": lambda n: [100 * n + t + 3 for t in range(sizes[n][1])],
        "segment_ids": lambda n: [100 * n + t for t in range(sizes[n][1])],
        "credit_mask": lambda n: [True] * sizes[n][1],
        "advantage": lambda n: [100.0 * n + t + 1 for t in range(sizes[n][1])],
        "old_logp": lambda n: [100.0 * n + t for t in range(sizes[n][1])],
        "values": lambda n: [-(100.0 * n + t) for t in range(sizes[n][1])],
    }


FILLS = {"weight": 1, "kind": -7, "segment_ids": -1, "credit_mask": 0, "advantage": 0, "old_logp": 0, "values": 0}


@given(lengths, st.data())
def test_every_column_reaches_the_loss_as_it_was(sizes: Lengths, data: Any) -> None:
    """Any rows in any order, cut to their longest response, whatever stands in the padding."""
    chosen = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    rollout, rewards, advantages = records(sizes)
    rewards.weight = torch.where(rollout.mask, rewards.weight, math.inf)
    units = RolloutUnits(rollout, rewards, advantages, pad_id=PAD)
    batch = units.batch(chosen)
    assert batch.mask.shape[1] == max(sizes[n][1] for n in chosen)
    assert batch.prompt_mask.shape[1] == max(sizes[n][0] for n in chosen)
    assert batch.columns["difficulty"].tolist() == [2 * n for n in chosen]
    assert batch.columns["response"].tolist() == [float(n) for n in chosen]
    for name, real in expected(sizes).items():
        column = batch.columns[name]
        assert column.shape == batch.mask.shape
        for row, n in enumerate(chosen):
            assert column[row][batch.mask[row]].tolist() == real(n), name
            assert set(column[row][~batch.mask[row]].tolist()) <= {FILLS[name]}, name
    criterion = batch.columns["criterion"]
    for row, n in enumerate(chosen):
        real = criterion[row, : sizes[n][2]][:, batch.mask[row]]
        assert real.tolist() == [[100.0 * n + t + 0.25 * c for t in range(sizes[n][1])] for c in range(sizes[n][2])]
        assert criterion[row, sizes[n][2] :, : sizes[n][1]].isnan().all()
        prompt = batch.columns["prompt_weight"][row]
        assert prompt[batch.prompt_mask[row]].tolist() == [100.0 * n - t for t in range(sizes[n][0], 0, -1)]
        assert set(prompt[~batch.prompt_mask[row]].tolist()) <= {0.5}
    assert not set(batch.columns) & {item.name for item in fields(Tokens)}
    assert "notes" not in batch.columns


@given(lengths, st.data())
def test_rows_of_a_rollout_and_encoded_rows_are_the_same_batch(sizes: Lengths, data: Any) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    rollout, _rewards, advantages = records(sizes)
    rows = [
        {
            "prompt": rollout.prompt_ids[i][rollout.prompt_mask[i]].tolist(),
            "response": rollout.response_ids[i][rollout.mask[i]].tolist(),
            "finished": False,
            "columns": {"advantage": advantages.advantage[i][rollout.mask[i]]},
        }
        for i in range(len(sizes))
    ]
    encoded = EncodedUnits([[row] for row in rows], pad_id=PAD, eos_ids={EOS}, columns={"advantage": per_token(fill=0)})
    units = RolloutUnits(rollout, advantages, pad_id=PAD)
    assert len(units) == len(encoded) == len(sizes)
    assert [units.shape(i) for i in chosen] == [encoded.shape(i) for i in chosen]
    found, wanted = units.batch(chosen), encoded.batch(chosen)
    found.columns = {"advantage": found.columns["advantage"]}
    for item in fields(Batch):
        one, two = getattr(found, item.name), getattr(wanted, item.name)
        assert torch.equal(one, two) if isinstance(two, Tensor) else item.name == "columns" or one == two, item.name
    assert torch.equal(found.columns["advantage"], wanted.columns["advantage"])


# -- declarations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [Tokens, Rollout, Segmentable, Rewards, Advantages, Batch, WeightedRewards])
def test_every_field_declares_its_column(record: type[TensorRows]) -> None:
    assert set(declarations(record)) == {item.name for item in fields(record)}


def test_a_field_without_a_declaration_is_an_error() -> None:
    @dataclass
    class Careless(Rewards):
        weight: Tensor | None = None

    with pytest.raises(TypeError, match=r"Careless.weight does not declare its column; .*per_token\(fill="):
        Careless(torch.zeros(2), torch.zeros(2, 3), torch.ones(2, 3).bool())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token": torch.zeros(2)}, r"Rewards.token: a tensor \[response, token\] is declared, got the shape \[2\]"),
        ({"response": torch.zeros(2, 3)}, r"Rewards.response: a tensor \[response\] is declared"),
        ({"token": [1.0, 2.0]}, "Rewards.token: .* got list"),
        ({"segment_ids": torch.zeros(2, 3).bool()}, "segment_ids: torch.bool cannot hold the declared fill -1"),
        ({"metrics": torch.zeros(2)}, "Rewards.metrics: a tensor is declared as one value for all rows"),
    ],
)
def test_values_are_held_against_their_declarations(change: dict[str, Any], message: str) -> None:
    rewards = Rewards(torch.zeros(2), torch.zeros(2, 3), torch.ones(2, 3).bool())
    with pytest.raises(TypeError, match=message):
        replace(rewards, **change)


def test_one_name_is_one_column() -> None:
    @dataclass
    class Shadowing(Advantages):
        token: Tensor = field(kw_only=True, metadata={"column": per_token(fill=0.0)})

    rollout, rewards, advantages = records([(1, 2, 1)])
    shadowing = Shadowing(advantages.advantage, token=advantages.advantage)
    with pytest.raises(ValueError, match="two columns are called token; rename the one of Shadowing"):
        RolloutUnits(rollout, rewards, shadowing, pad_id=PAD)


def test_a_column_that_only_some_processes_have_is_an_error() -> None:
    (one, *_), (two, *_) = records([(1, 2, 1)]), records([(1, 1, 1)])
    two.values = None
    with pytest.raises(ValueError, match=r"Rollout.values: only some of the parts have a value"):
        concatenate([one, two])


def test_an_undeclared_column_of_a_data_set_is_an_error() -> None:
    row = {"prompt": [1], "response": [3, 2], "finished": True, "columns": {"weight": torch.ones(2)}}
    units = EncodedUnits([[row]], pad_id=PAD, eos_ids={EOS})
    with pytest.raises(ValueError, match=r"the column weight of the rows is not declared; .*`columns`"):
        units.batch([0])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([1.0, -3.5, 0.0]))
def test_rows_are_stacked_with_the_declared_fill(sizes: list[int], fill: float) -> None:
    rows = [torch.arange(float(size)) + 50 for size in sizes]
    stacked = per_token(fill=fill).stack(rows, max(sizes) + 1)
    for row, size in zip(stacked, sizes, strict=True):
        assert row[:size].tolist() == [50.0 + t for t in range(size)]
        assert set(row[size:].tolist()) == {fill}
    assert per_response().stack([row[0] for row in rows], 9).tolist() == [50.0] * len(sizes)


def test_criteria_that_another_process_has_are_nan() -> None:
    column: Column = per_criterion_token(fill=0)
    joined = column.concatenate([torch.ones(1, 1, 2), torch.ones(1, 2, 3)], [1, 1])
    assert joined[0, 0].tolist() == [1.0, 1.0, 0.0]
    assert joined[0, 1].isnan().all()


@pytest.mark.parametrize(("side", "wanted"), [
    ("left", [[-1, 7, 8], [-1, -1, 9], [4, 5, 6]]), ("right", [[7, 8, -1], [9, -1, -1], [4, 5, 6]]),
])  # fmt: skip
def test_rows_of_a_width_of_their_own(side: Any, wanted: list[list[int]]) -> None:
    """They are neither as long as the prompts nor as the responses, and no mask cuts them."""
    column = per_row(fill=-1, side=side)
    first = torch.tensor([[7, 8], [-1, 9] if side == "left" else [9, -1]])
    whole = column.concatenate([first, torch.tensor([[4, 5, 6]])], [2, 1])
    assert whole.tolist() == wanted
    assert whole.dtype == torch.long
    mask = torch.ones(3, 1, dtype=torch.bool)
    assert column.cut(whole, mask, mask).tolist() == wanted
    assert column.take(whole, torch.tensor([2, 0])).tolist() == [wanted[2], wanted[0]]
    assert column.stack([torch.tensor(ids) for ids in ([7, 8], [9], [4, 5, 6])], 1).tolist() == wanted
    with pytest.raises(TypeError, match="cannot hold the declared fill"):
        column.check("told", mask)
