"""Which of several models is the best by a number."""

from __future__ import annotations

from typing import Any

import pytest

from fgrl.measuring.choosing import Choice


@pytest.mark.parametrize(
    ("goal", "values", "best"),
    [
        ("max", {"a": 1.0, "b": 3.0, "c": 2.0}, "b"),
        ("min", {"a": 2.0, "b": 1.0, "c": 3.0}, "b"),
        ("max", {"a": 1.0, "b": 1.0}, "a"),
        ("min", {"a": None, "b": 1.0, "c": 1.0}, "b"),
        ("max", {"a": -1.0, "b": None}, "a"),
        ("max", {"a": None, "b": None}, None),
        ("max", {}, None),
    ],
)
def test_the_first_of_the_best_and_never_a_missing_one(goal: Any, values: dict[str, Any], best: str | None) -> None:
    assert Choice(number="x", goal=goal).best_of(values) == best
