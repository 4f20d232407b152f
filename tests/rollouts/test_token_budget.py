"""Passes without padding: what is in them, and how many there are."""

from hypothesis import given
from hypothesis import strategies as st

from fgrl.rollouts import token_budget

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=40)


@given(lengths, st.integers(1, 12))
def test_what_is_dealt_out_is_all_there_is_the_fullest_part_first(lengths: list[int], parts: int) -> None:
    dealt = token_budget.dealt(lengths, parts)
    sums = [sum(lengths[index] for index in part) for part in dealt]
    assert len(dealt) == parts
    assert sorted(index for part in dealt for index in part) == list(range(len(lengths)))
    assert sums == sorted(sums, reverse=True)
    assert sums[0] - sums[-1] <= max(lengths)


@given(lengths, st.integers(1, 100), st.integers(1, 3))
def test_no_pass_is_longer_than_allowed_but_for_a_row_alone(lengths: list[int], most: int, world: int) -> None:
    count = token_budget.fewest(lengths, most, world)
    assert count * world * max(most, *lengths) >= sum(lengths)
    assert all(
        sum(lengths[index] for index in part) <= max(most, *lengths)
        for part in token_budget.dealt(lengths, count * world)
    )


def test_without_rows_there_is_no_pass() -> None:
    assert token_budget.fewest([], 100) == 0
    assert token_budget.dealt([], 0) == []
