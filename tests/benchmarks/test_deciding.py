"""What differences decide is what other libraries compute, and as many seeds as are said are enough."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from fgrl_benchmark import deciding
from fgrl_benchmark.comparisons import holm, power_of
from fgrl_benchmark.deciding import Change


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(0)


def test_p_is_that_of_the_paired_test_also_from_an_interval(draw: np.random.Generator) -> None:
    for seeds in (2, 3, 5, 20):
        values = list(draw.normal(0.1, 0.2, seeds))
        expected = scipy.stats.ttest_1samp(values, 0.0)
        low, high = expected.confidence_interval(0.95)
        for change in (Change.of(values), Change.of_interval(float(np.mean(values)), low, high, seeds)):
            assert change.p == pytest.approx(expected.pvalue)
            assert change.spread == pytest.approx(np.std(values, ddof=1))
    assert Change.of([0.0, 0.0]).p == 1.0
    assert Change.of([0.1, 0.1]).p == 0.0


def test_holm_is_that_of_statsmodels(draw: np.random.Generator) -> None:
    values = list(draw.uniform(0, 0.2, 30))
    assert holm(values) == pytest.approx(list(multipletests(values, method="holm")[1]))


def test_equal_is_two_one_sided_tests(draw: np.random.Generator) -> None:
    said = set()
    for margin in (0.05, 0.1, 0.2):
        for seeds in (3, 5, 20):
            values = draw.normal(0.03, 0.1, seeds)
            p = DescrStatsW(values).ttost_mean(-margin, margin)[0]
            said.add(Change.of(list(values)).is_equal(margin))
            assert Change.of(list(values)).is_equal(margin) == (p < 0.05)
    assert said == {True, False}


def test_power_is_that_of_statsmodels() -> None:
    for effect, seeds, level in ((0.5, 20, 0.05), (1.2, 6, 0.001)):
        expected = TTestPower().power(effect, seeds, level, alternative="two-sided")
        assert power_of(effect, seeds, level) == pytest.approx(expected, abs=1e-4)


def test_power_of_equality_is_that_of_simulated_tests(draw: np.random.Generator) -> None:
    for mean, margin, seeds in ((0.0, 0.1, 10), (0.04, 0.1, 20), (0.0, 0.05, 5)):
        values = draw.normal(mean, 0.1, (40_000, seeds))
        half = scipy.stats.t.ppf(0.95, seeds - 1) * values.std(axis=1, ddof=1) / seeds**0.5
        found = float((np.abs(values.mean(axis=1)) + half < margin).mean())
        assert deciding.power_of_equality(mean, 0.1, margin, seeds) == pytest.approx(found, abs=0.01)
    many = 2 * scipy.stats.norm.cdf(0.1 / 0.1 * 900**0.5 * 0.1 - scipy.stats.norm.ppf(0.95)) - 1
    assert deciding.power_of_equality(0.0, 0.1, 0.01, 900) == pytest.approx(many, abs=0.002), "of a known spread"
    assert deciding.power_of_equality(0.05, 0.0, 0.1, 3) == 1.0
    assert deciding.power_of_equality(0.15, 0.0, 0.1, 3) == 0.0


def test_a_line_is_decided_or_says_what_it_needs() -> None:
    close, far = Change(0.01, 0.02, 10), Change(-0.2, 0.05, 5)
    assert deciding.verdict(far, 0.1, 0.01, 50) == ("the opposite", None)
    assert deciding.verdict(Change(0.2, 0.05, 5), None, 0.049, 50) == ("holds", None)
    assert deciding.verdict(close, 0.05, 1.0, 50) == ("equal", None)
    word, seeds = deciding.verdict(close, None, 1.0, 50)
    assert word == "needs"
    assert seeds is not None
    assert power_of(0.5, seeds, 0.05 / 50) >= 0.8 > power_of(0.5, seeds - 1, 0.05 / 50)
    assert deciding.verdict(Change(0.0, 0.1, 5), None, 1.0, 50) == ("needs", None), "no number of seeds tells 0"


def test_seeds_that_are_planned_suffice_for_no_difference_and_for_twice_the_margin() -> None:
    for spread, margin in ((0.03, 0.02), (0.1, 0.08), (0.02, 0.05)):
        seeds = deciding.planned_seeds(spread, margin, 50)
        assert seeds is not None

        def enough(seeds: int, spread: float = spread, margin: float = margin) -> bool:
            told = power_of(2 * margin / spread, seeds, 0.05 / 50)
            return min(told, deciding.power_of_equality(0.0, spread, margin, seeds)) >= 0.8

        assert enough(seeds)
        assert seeds == 2 or not enough(seeds - 1)
    assert deciding.planned_seeds(1.0, 0.01, 50) is None
