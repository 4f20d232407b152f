"""Metrics of parts are those of the whole."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_helpers import joined

from fgrl.base.mergeable import as_numbers, merged
from fgrl.training.tally import Tally
from fgrl.types import Mean, Most

parts = st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=4), min_size=1, max_size=5)


@given(parts)
def test_means_add_up_and_the_greatest_is_kept(values: list[list[float]]) -> None:
    """Each part is a row with several tokens."""
    flat = [value for row in values for value in row]
    said = [
        ({"token": Mean(sum(row), len(row)), "most": Most(max(row)), "row": sum(row) / len(row)}, 1) for row in values
    ]
    found = joined(said)
    assert found["token"] == pytest.approx(sum(flat) / len(flat), abs=1e-9)
    assert found["most"] == max(flat)
    assert found["row"] == pytest.approx(sum(sum(row) / len(row) for row in values) / len(values), abs=1e-9)


def test_rows_weigh_plain_numbers() -> None:
    assert joined([({"a": 1.0}, 3), ({"a": 5.0}, 1)]) == {"a": 2.0}
    assert joined([({"a": 1.0}, 3), ({"b": 5.0}, 1)]) == {"a": 1.0, "b": 5.0}


def test_what_ran_for_nothing_counts_nothing_and_is_known() -> None:
    """A rank whose micro-batch is a stand-in says the same names as the others, and nothing of what they mean."""
    idle, busy = Tally(), Tally()
    numbers = {"row": 3.0, "token": Mean(8, 4), "most": Most(7.0)}
    busy.add(numbers, rows=2)
    idle.add({"row": float("nan"), "token": Mean(100, 1), "most": Most(99.0)}, rows=0)
    sent: list[list[float]] = []

    def collect(mine: list[float], how: str) -> list[float]:
        sent.append(mine)
        return mine

    assert idle.take(collect) == {}
    assert busy.take(collect) == {"row": 3.0, "token": 2.0, "most": 7.0}
    assert [len(mine) for mine in sent[:2]] == [len(mine) for mine in sent[2:]], "collectives of the same shape"
    assert busy.take() == {}


def test_a_mean_has_parts_and_a_value() -> None:
    mean = Mean(6, 4)
    assert (mean.value, float(mean), mean.total, mean.count) == (1.5, 1.5, 6.0, 4.0)
    again = pickle.loads(pickle.dumps(mean))
    assert (again, again.total, again.count) == (mean, 6.0, 4.0)
    assert pickle.loads(pickle.dumps(Most(2))) == Most(2.0)
    assert math.isnan(Mean(0, 0).value)


def test_a_metric_is_no_number_that_arithmetic_could_strip_of_its_parts() -> None:
    with pytest.raises(TypeError):
        Mean(6, 4) * 2  # type: ignore[operator]
    assert as_numbers({"mean": Mean(6, 4), "most": Most(3), "plain": 0.5}) == {"mean": 1.5, "most": 3.0, "plain": 0.5}


def test_one_name_has_one_kind_of_metric() -> None:
    with pytest.raises(ValueError, match="the metric loss is a Mean and a Most"):
        merged([({"loss": Mean(1, 1)}, 1), ({"loss": Most(1)}, 1)])
