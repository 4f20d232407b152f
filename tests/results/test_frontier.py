"""The frontier of two numbers: which points there are, and which are best."""

from __future__ import annotations

import re

import pytest
from frontier_runs import ALL, WIN, recipes_at

from fgrl.base.errors import UsageError
from fgrl.runs.results.evaluations import RecipeResults
from fgrl.runs.results.frontier import Frontier
from fgrl.runs.results.frontier import frontier as of_table
from fgrl.runs.results.table import table_of


def frontier(results: list[RecipeResults], x: str, y: str, models: list[str] | None = None) -> Frontier:
    return of_table(table_of(results), x, y, models or [])


def test_points_are_the_models_that_have_both_numbers_on_the_same_prompts() -> None:
    found = frontier(ALL, "kl.sum", "length_adjusted")
    assert (str(found.x_name), str(found.y_name)) == ("kl.sum", f"{WIN}.length_adjusted")
    assert len(found.points) == 13  # twelve policies and, once, where they all began
    start, *policies = found.points
    assert (start.model, start.start, start.x.mean) == ("sft", True, 0.0)
    assert {point.model for point in policies} == {"policy"}
    assert [point.x.mean for point in policies[:4]] == [4.0, 9.0, 16.0, 25.0]  # not those of the other stage
    assert [point.label for point in policies[:4]] == ["kl_coef 0.03", "kl_coef 0.01", "kl_coef 0.003", "kl_coef 0.001"]


def test_the_best_are_those_that_nothing_beats() -> None:
    found = frontier(ALL, "kl.sum", "length_adjusted")
    assert [(point.series, point.start) for point in found.points if point.best] == [
        ("segment", True),
        *[("segment", False)] * 4,
    ]


def test_dominance_is_strict_in_one_number() -> None:
    found = frontier(
        recipes_at((2.0, 0.5), (2.0, 0.4), (3.0, 0.5), (1.0, 0.2), (2.0, 0.5)), "kl.sum", "length_adjusted", ["policy"]
    )
    assert {point.series: point.best for point in found.points} == {
        "0": True,
        "1": False,
        "2": False,
        "3": True,
        "4": True,
    }


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        ("kl.sum", "wins", 'no evaluation has a number "wins"'),
        ("kl.sum", "kl.mean", 'no evaluation has a number "kl.mean"'),
        ("kl", "length_adjusted", 'may mean "e/kl.sum", "e/kl.per_token"'),
        ("other/kl.sum", "length_adjusted", "no evaluation has"),
    ],
)
def test_a_number_that_is_not_clear(x: str, y: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        frontier(recipes_at((2.0, 0.5)), x, y)


def test_a_stage_can_be_named() -> None:
    found = frontier(ALL[:1], "evaluate/kl.sum", "alpaca_eval/length_adjusted")
    assert [point.x.mean for point in found.points] == [104.0]


def test_what_has_not_run_is_named_and_left_out() -> None:
    found = frontier([*recipes_at((2.0, 0.5)), RecipeResults("late", {}, {})], "kl.sum", "length_adjusted")
    assert found.skipped == ["late"]
    assert {point.series for point in found.points} == {"0"}
