"""Tables of rows are the lists of dicts that they stand for, in a few bytes a token."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgrl.rollouts.rows import Ragged, RowGroups, TableRow, TokenTable
from fgrl.training.steps import Step, StepLoader
from fgrl.training.units import EncodedUnits
from fgrl.types import per_response, per_token

ids = st.lists(st.integers(0, 2**31 - 1), max_size=6)
groups = st.lists(st.tuples(ids, st.lists(ids, min_size=1, max_size=3)), max_size=5)

COLUMNS = {
    "token": per_token(fill=0), "one": per_response(), "segment": per_token(fill=-1), "ref_logp": per_response(),
}  # fmt: skip


def both(data: list[tuple[list[int], list[list[int]]]]) -> tuple[TokenTable, list[dict[str, Any]]]:
    table, plain = TokenTable(COLUMNS), []
    for prompt, responses in data:
        table.add(prompt, *responses, eos_ids={0, 1})
        for one in responses:
            finished = bool(one) and one[-1] in {0, 1}
            plain.append({"prompt": prompt, "response": one, "finished": finished, "lost": (0, 0), "columns": {}})
    return table, plain


@given(groups)
def test_rows_read_like_dicts(data: list[tuple[list[int], list[list[int]]]]) -> None:
    table, plain = both(data)
    assert len(table) == len(plain)
    assert [dict(row) | {"columns": dict(row["columns"])} for row in table] == plain
    assert table.lengths() == [len(row["response"]) for row in plain]
    assert table.lengths("prompt") == [len(row["prompt"]) for row in plain]
    assert [row["response"] for row in table[1:]] == [row["response"] for row in plain[1:]]
    if plain:
        assert table[-1]["response"] == plain[-1]["response"]
        assert isinstance(table[0]["prompt"], list)


def test_a_row_that_is_not_there() -> None:
    table, _plain = both([([1], [[2]])])
    for index in (1, -2):
        with pytest.raises(IndexError):
            table[index]
    with pytest.raises(KeyError):
        table[0]["promt"]
    with pytest.raises(KeyError):
        table[0]["columns"]["segment"]


@given(groups, st.sampled_from([torch.int64, torch.float32, torch.bool, torch.float64]))
def test_columns_come_back_as_they_were_set(data: Any, dtype: torch.dtype) -> None:
    table, plain = both(data)
    for i, row in enumerate(table):
        length = len(row["response"])
        for name, value in (("token", torch.arange(length) - 1), ("one", torch.tensor(i))):
            row["columns"][name] = value.to(dtype)
            plain[i]["columns"][name] = value.to(dtype)
    for row, other in zip(table, plain, strict=True):
        assert list(row["columns"]) == list(other["columns"])
        for name, value in other["columns"].items():
            assert row["columns"][name].dtype == value.dtype
            assert torch.equal(row["columns"][name], value)
            assert row["columns"][name].shape == value.shape


def test_columns_refuse_what_does_not_fit() -> None:
    table, _plain = both([([1], [[2, 3], [4]])])
    with pytest.raises(ValueError, match=r"the column weight is not declared; declare it in the algorithm's `columns`"):
        table[0]["columns"]["weight"] = torch.ones(2)
    with pytest.raises(ValueError, match="one value per response token"):
        table[0]["columns"]["token"] = torch.tensor(1)
    with pytest.raises(ValueError, match="a row has one value"):
        table[0]["columns"]["one"] = torch.tensor([1, 2])
    table[0]["columns"]["token"] = torch.tensor([1, 2])
    assert list(table[1]["columns"]) == []
    with pytest.raises(KeyError, match="no value in row 1"):
        table[1]["columns"]["token"]
    for wrong in (torch.tensor([1, 2]), torch.tensor(1), torch.tensor([1.0])):
        with pytest.raises(ValueError, match=r"row 1: a column of torch.int64 \[1\] got"):
            table[1]["columns"]["token"] = wrong
    with pytest.raises(ValueError, match="four bytes"):
        table[1]["columns"]["token"] = torch.tensor([2**31])
    with pytest.raises(ValueError, match="add all rows before"):
        table.add([1], [2], eos_ids=set())


def test_units_are_groups_of_rows() -> None:
    table, _plain = both([([9], [[i], [i, i]]) for i in range(5)])
    units = RowGroups(table, each=2)
    assert len(units) == 5
    assert [[row["response"] for row in unit] for unit in units] == [[[i], [i, i]] for i in range(5)]
    assert [[row["response"] for row in unit] for unit in units[1:4][1:]] == [[[2], [2, 2]], [[3], [3, 3]]]
    assert units[3:][0][1]["response"] == [3, 3]
    assert len(units[5:]) == 0
    assert not units[5:]
    with pytest.raises(IndexError):
        units[5]


def test_batches_are_those_of_dicts() -> None:
    table, plain = both([([5] * (1 + i % 3), [[7] * (1 + i), [8, 0]]) for i in range(6)])
    for i in range(len(plain)):
        length = len(plain[i]["response"])
        for row in (table[i], plain[i]):
            row["columns"]["segment"] = torch.arange(length) // 2
            row["columns"]["ref_logp"] = torch.tensor(-float(i))
    steps = [Step([4, 0, 2]), Step([1, 5, 3])]
    ways = (RowGroups(table, each=2), [plain[i : i + 2] for i in range(0, len(plain), 2)])
    encoded = [EncodedUnits(units, pad_id=0, eos_ids={0, 1}, columns=COLUMNS) for units in ways]
    found, wanted = ([*StepLoader(units, steps, micro_batches=2)] for units in encoded)
    for one, two in zip(found, wanted, strict=True):
        for name, value in vars(two).items():
            mine = getattr(one, name)
            if isinstance(value, torch.Tensor):
                assert torch.equal(mine, value), name
            elif isinstance(value, dict):
                assert mine.keys() == value.keys()
                assert all(torch.equal(mine[key], value[key]) for key in value)
                assert all(mine[key].dtype == value[key].dtype for key in value)
            else:
                assert mine == value, name


def test_four_bytes_a_token_and_the_prompt_of_a_pair_once() -> None:
    table, _plain = both([([1] * 300, [[2] * 350, [3] * 250]) for _ in range(100)])
    assert len(pickle.dumps(table)) / 100 < 4 * 900 + 96
    for row in table:
        row["columns"]["segment"] = torch.zeros(len(row["response"]), dtype=torch.int64)
    assert len(pickle.dumps(table)) / 100 < 4 * 900 + 4 * 600 + 136


@given(st.lists(st.integers(0, 4), max_size=6))
def test_ragged_rows_are_slices(lengths: list[int]) -> None:
    flat = torch.arange(float(sum(lengths)))
    ragged = Ragged(lengths)
    ragged.flat.copy_(flat)
    assert [one.tolist() for one in ragged] == [one.tolist() for one in flat.split(lengths)]
    for i, length in enumerate(lengths):
        ragged[i] = torch.full((length,), -1.0)
    assert bool((ragged.flat == -1).all())
    with pytest.raises(IndexError):
        ragged[len(lengths)]


def test_a_row_is_small() -> None:
    assert not hasattr(TableRow(TokenTable(), 0), "__dict__")
