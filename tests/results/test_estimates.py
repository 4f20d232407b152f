"""Estimates as text and as positions."""

from __future__ import annotations

import pytest

from fgrl.measuring.statistics import Estimate
from fgrl.runs.results.estimates import Axis, ShownEstimate, axis_of, common_decimals
from fgrl.runs.results.numbers import measures


def test_the_narrowest_interval_has_two_digits() -> None:
    wide, narrow = Estimate(mean=3.0, low=1.0, high=5.0), Estimate(mean=0.5, low=0.47, high=0.53)
    assert (common_decimals([wide]), common_decimals([wide, narrow])) == (1, 3)
    assert common_decimals([Estimate(mean=3.0)]) is None
    assert common_decimals([Estimate(mean=1e8, low=0.0, high=2e8)]) is None


def test_texts() -> None:
    shown = ShownEstimate.of(Estimate(mean=-0.5, low=-0.75, high=0.25, note="why"), 2)
    assert (shown.value, shown.interval, shown.with_interval) == ("−0.50", "−0.75 to 0.25", "−0.50 [−0.75 to 0.25]")
    assert (shown.change, ShownEstimate.of(Estimate(mean=0.5), 1).change) == ("−0.50", "+0.5")
    assert (shown.changed, shown.note) == (False, "why")
    nothing = ShownEstimate.of(Estimate(mean=None))
    assert (nothing.value, nothing.interval, nothing.changed) == ("–", "", None)


@pytest.mark.parametrize(("low", "high", "changed"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False)])
def test_a_change_is_one_when_its_interval_excludes_zero(low: float, high: float, changed: bool) -> None:
    assert ShownEstimate.of(Estimate(mean=(low + high) / 2, low=low, high=high)).changed is changed


def test_positions() -> None:
    shown = ShownEstimate.of(Estimate(mean=5.0, low=2.5), axis=Axis(0.0, 10.0))
    assert (shown.at, shown.left, shown.right) == (50.0, 25.0, 50.0)
    assert Axis(1.0, 1.0).percent(3.0) == 50.0
    assert axis_of([1.0, 2.0]) == Axis(pytest.approx(0.88), pytest.approx(2.12))
    zero = axis_of([0.5, 1.0, 0.0])
    assert zero.low < 0 < zero.percent(0.0)


def test_a_count_that_was_not_recorded_is_not_zero() -> None:
    assert ShownEstimate.of(Estimate(mean=1.0)).count is None
    assert ShownEstimate.of(Estimate(mean=None)).count == 0
    assert ShownEstimate.of(Estimate(mean=1.0, n=4)).count == 4


def test_values_and_differences_have_their_own_axes_and_common_decimals() -> None:
    report = {
        "baseline": "sft",
        "metrics": {"m": {
            "sft": {"x": {"mean": 10.0, "low": 9.0, "high": 11.0}},
            "policy": {"x": {"mean": 20.0, "low": 19.0, "high": 21.0}},
            "differences": {"policy": {"x": {"mean": 10.0, "low": 9.9, "high": 10.1}}},
        }},
    }  # fmt: skip
    (measure,) = measures(report)
    sft, policy = measure.models
    assert (sft.value.value, policy.value.value) == ("10.00", "20.00")
    assert sft.value.at < policy.value.at
    assert sft.difference is None
    assert policy.difference is not None
    assert measure.zero is not None
    assert measure.zero < policy.difference.left < policy.difference.at < policy.difference.right
