"""Intervals and areas under the curve, against closed forms, an O(N^2) reference and scikit-learn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.measuring.statistics import (
    Estimate,
    area_under_curve,
    auc,
    averaged,
    combined,
    difference,
    estimate,
    lower_tail_mean,
    of_sums,
    student,
    value_of,
    weighted_mean,
)


def bootstrap_mean(values, prompts, *, weights=None, **options):
    return estimate(weighted_mean(values, prompts, weights), **options)


def bootstrap_difference(first, first_prompts, second, second_prompts, **options):
    return difference(weighted_mean(first, first_prompts), weighted_mean(second, second_prompts), **options)


def bootstrap_auc(scores, positive, clusters, **options):
    return estimate(area_under_curve(scores, positive, clusters), **options)


small = settings(max_examples=60, deadline=None)


def slow_auc(scores, positive):
    won = [
        1.0 if high > low else 0.5 if high == low else 0.0
        for (high, yes), (low, no) in itertools.product(zip(scores, positive, strict=True), repeat=2)
        if yes and not no
    ]
    return sum(won) / len(won) if won else None


labelled = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=0, max_size=30)


@small
@given(labelled)
def test_auc_counts_every_pair(rows):
    scores, positive = [float(score) for score, _ in rows], [label for _, label in rows]
    slow = slow_auc(scores, positive)
    assert auc(scores, positive) == (None if slow is None else pytest.approx(slow, abs=1e-12))


def test_auc_is_scikit_learns():
    from sklearn.metrics import roc_auc_score

    generator = np.random.default_rng(3)
    for ties in (1, 3, 100):
        scores = generator.integers(0, ties + 1, 200) / 7
        positive = generator.random(200) < 0.2
        assert auc(scores.tolist(), positive.tolist()) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


def test_auc_by_hand():
    assert auc([1.0, 2.0, 3.0], [False, False, True]) == 1.0
    assert auc([3.0, 2.0, 1.0], [False, False, True]) == 0.0
    assert auc([5.0, 5.0, 5.0], [True, False, False]) == 0.5
    assert auc([1.0], [True]) is None
    with pytest.raises(ValueError, match="NaN"):
        auc([1.0, math.nan], [True, False])
    with pytest.raises(ValueError, match="as many"):
        auc([1.0], [True, False])


def test_auc_draws_are_the_auc_of_repeated_data():
    """A cluster drawn twice counts as if its rows stood there twice."""
    scores, positive, clusters = [1.0, 2.0, 2.0, 0.0, 3.0], [True, False, True, False, False], list("aabbc")
    measured = area_under_curve(scores, positive, clusters)
    for times in itertools.product(range(3), repeat=3):
        rows = [i for i, cluster in enumerate(clusters) for _ in range(times["abc".index(cluster)])]
        expected = slow_auc([scores[i] for i in rows], [positive[i] for i in rows])
        found = measured.of_draws(np.array([times]))[0]
        assert math.isnan(found) if expected is None else found == pytest.approx(expected, abs=1e-12)


def test_mean_is_over_answers_and_the_interval_over_prompts():
    found = bootstrap_mean([1.0, 0.0, 0.0, 1.0], ["a", "a", "a", "b"])
    assert (found.mean, found.n, found.groups) == (0.5, 4, 2)
    # Two clusters: the draws are aa (mean 1/3), ab (1/2), bb (1), a quarter, a half, a quarter of the time.
    assert found.low == pytest.approx(1 / 3)
    assert found.high == 1.0


def test_interval_of_a_large_sample_is_the_normal_one():
    """For 4,000 independent values: mean +- 1.96 standard errors."""
    values = np.random.default_rng(0).normal(2.0, 3.0, 4000)
    found = bootstrap_mean(values.tolist(), range(4000), seed=1)
    error = values.std() / math.sqrt(4000)
    assert found.mean == pytest.approx(values.mean(), abs=1e-12)
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_copies_of_an_answer_do_not_narrow_the_interval():
    values = [float(i % 3 == 0) for i in range(40)]
    once = bootstrap_mean(values, range(40))
    copied = bootstrap_mean([value for value in values for _ in range(5)], [i for i in range(40) for _ in range(5)])
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))
    independent = bootstrap_mean([value for value in values for _ in range(5)], range(200))
    assert independent.high - independent.low < 0.6 * (once.high - once.low)


def test_coverage_of_clustered_data():
    """The 90% interval of 60 clusters of 4 covers the true mean about 90% of the time, not far less."""
    generator = np.random.default_rng(7)
    covered = 0
    for trial in range(100):
        prompts = np.repeat(np.arange(60), 4)
        values = generator.normal(size=60)[prompts] + 0.3 * generator.normal(size=240)
        found = bootstrap_mean(values.tolist(), prompts.tolist(), resamples=400, level=0.9, seed=trial)
        covered += found.low <= 0 <= found.high
    assert 80 <= covered <= 98


def test_same_seed_same_interval():
    values, prompts = [0.1 * i for i in range(30)], [i // 2 for i in range(30)]
    assert bootstrap_mean(values, prompts, seed=5) == bootstrap_mean(values, prompts, seed=5)
    assert bootstrap_mean(values, prompts, seed=5).low != bootstrap_mean(values, prompts, seed=6).low


def test_resampling_in_blocks_draws_as_many():
    import fgrl.measuring.statistics as statistics

    blocks = list(statistics._draws(3000, 2000, 0))
    assert len(blocks) > 1
    assert sum(len(block) for block in blocks) == 2000
    assert all((block.sum(1) == 3000).all() for block in blocks)


def test_weights_make_a_mean_over_tokens():
    found = bootstrap_mean([1.0, 4.0], ["a", "b"], weights=[30, 10])
    assert found.mean == pytest.approx((30 * 1 + 10 * 4) / 40)


def test_missing_values_are_left_out_but_their_prompts_are_resampled():
    found = bootstrap_mean([1.0, None, math.nan, 3.0], ["a", "b", "c", "d"])
    assert (found.mean, found.n, found.groups) == (2.0, 2, 4)
    assert "undefined" in found.note  # draws of b and c alone have no mean
    nothing = bootstrap_mean([None, None], ["a", "b"])
    assert (nothing.mean, nothing.low, nothing.n, nothing.note) == (None, None, 0, "no values")
    assert bootstrap_mean([], []).mean is None


def test_a_single_prompt_has_no_interval():
    found = bootstrap_mean([1.0, 2.0], ["a", "a"])
    assert (found.mean, found.low, found.high) == (1.5, None, None)
    assert "no interval" in found.note


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="as many"):
        bootstrap_mean([1.0], ["a", "b"])
    with pytest.raises(ValueError, match="finite"):
        bootstrap_mean([math.inf], ["a"])
    with pytest.raises(ValueError, match="weights >= 0"):
        bootstrap_mean([1.0], ["a"], weights=[-1.0])
    with pytest.raises(ValueError, match="level"):
        bootstrap_mean([1.0, 2.0], ["a", "b"], level=95)


def test_paired_difference_cancels_what_prompts_share():
    """Prompts differ by 10, the models by exactly 1: the paired interval is a point, an unpaired one would be wide."""
    base = [10.0 * i for i in range(20)]
    prompts = [f"p{i}" for i in range(20)]
    found = bootstrap_difference([value + 1 for value in base], prompts, base, prompts)
    assert (found.mean, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_paired_difference_finds_prompts_by_name():
    prompts, values = ["a", "b", "c"], [1.0, 5.0, 9.0]
    found = bootstrap_difference(values, prompts, values[::-1], prompts[::-1])
    assert (found.mean, found.low, found.high) == pytest.approx((0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="only on one: c, d"):
        bootstrap_difference([1.0, 2.0], ["a", "c"], [1.0, 2.0], ["a", "d"])


@small
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=20))
def test_difference_is_the_mean_of_differences(rows):
    prompts = [prompt for prompt, _, _ in rows]
    first, second = [row[1] for row in rows], [row[2] for row in rows]
    paired = bootstrap_difference(first, prompts, second, prompts, resamples=50)
    direct = bootstrap_mean([one - two for one, two in zip(first, second, strict=True)], prompts, resamples=50)
    assert paired.mean == pytest.approx(direct.mean, abs=1e-9)
    if len(set(prompts)) > 1:
        assert (paired.low, paired.high) == pytest.approx((direct.low, direct.high), abs=1e-9)


def test_difference_with_a_missing_side_says_so():
    one, none = weighted_mean([1.0, 2.0], ["a", "b"]), weighted_mean([None, None], ["a", "b"])
    assert difference(one, none) == Estimate(mean=None, n=0, groups=2, note="no values")


def test_bootstrap_auc():
    scores = [3.0, 0.0, 1.0, 2.0, 5.0, 1.0]
    positive = [True, False, False, True, True, False]
    found = bootstrap_auc(scores, positive, ["a", "a", "b", "b", "c", "c"])
    assert (found.mean, found.low, found.high, found.n, found.positives) == (1.0, 1.0, 1.0, 6, 3)
    assert bootstrap_auc([1.0, 2.0], [False, False], ["a", "b"]) == Estimate(
        mean=None, n=2, groups=2, positives=0, note="no positives"
    )
    assert bootstrap_auc([1.0], [True], ["a"]).note == "no negatives"
    assert bootstrap_auc([], [], []).note == "no positives"


def test_bootstrap_auc_of_noise_covers_a_half_and_of_signal_does_not():
    generator = np.random.default_rng(2)
    positive, clusters = generator.random(600) < 0.3, np.arange(600) // 10
    noise = generator.normal(size=600)
    found = bootstrap_auc(noise.tolist(), positive.tolist(), clusters.tolist(), resamples=500)
    assert found.low < 0.5 < found.high
    found = bootstrap_auc((noise + positive).tolist(), positive.tolist(), clusters.tolist(), resamples=500)
    assert 0.5 < found.low < found.mean < found.high < 1


def test_undefined_draws_are_counted():
    """One positive, in one of two clusters: draws without it have no area."""
    found = estimate(area_under_curve([1.0, 0.0, 0.5], [True, False, False], ["a", "a", "b"]), resamples=400)
    missing = int(found.note.split()[2])
    assert 60 <= missing <= 140  # a quarter of the draws are b, b
    assert found.mean == 1.0


def test_lower_tail_is_the_mean_of_the_lowest_values():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    for share, expected in [(0.2, 1.0), (0.4, 1.5), (0.3, (1.0 + 0.5 * 2.0) / 1.5), (1.0, 3.0)]:
        found = estimate(lower_tail_mean(values, "abcde", share))
        assert found.mean == pytest.approx(expected)
        assert found.low <= found.mean <= found.high
    assert estimate(lower_tail_mean([None, 2.0, math.nan], "abc", 0.5)).mean == 2.0
    assert estimate(lower_tail_mean([None], "a", 0.5)).note == "no values"
    with pytest.raises(ValueError, match="share"):
        lower_tail_mean([1.0], "a", 0.0)


def test_lower_tail_of_a_draw_is_that_of_repeated_data():
    measured = lower_tail_mean([5.0, 1.0, 4.0], "aab", 0.5)
    repeated = [1.0, 1.0, 5.0, 5.0, 4.0, 4.0, 4.0]  # a twice, b three times: the lowest 3.5 of 7
    assert measured.of_draws(np.array([[2, 3]]))[0] == pytest.approx(sum([*sorted(repeated)[:3], 4.0 / 2]) / 3.5)


@small
@given(st.lists(st.tuples(st.floats(-9, 9) | st.none(), st.sampled_from("abc")), min_size=1, max_size=12))
def test_a_mean_is_a_statistic_of_sums(data):
    values, clusters = zip(*data, strict=True)
    rows = [None if value is None else (value, 1) for value in values]
    found = estimate(of_sums(rows, clusters), resamples=50)
    wanted = estimate(weighted_mean(values, clusters), resamples=50)
    assert found.model_dump(exclude={"note"}) == pytest.approx(wanted.model_dump(exclude={"note"}), nan_ok=True)
    assert found.note == wanted.note


def test_sums_that_define_nothing_are_missing():
    found = estimate(of_sums([(0, 0), (0, 0)], "ab"))
    assert (found.mean, found.note, found.n) == (None, "undefined on all the data", 2)
    with pytest.raises(ValueError, match="1 rows, 2 clusters"):
        of_sums([(1, 1)], "ab")


def test_clusters_without_scores_are_resampled_too():
    with_all = area_under_curve([1.0, 0.0], [True, False], ["a", "b"], ["a", "b", "c"])
    assert with_all.clusters == ("a", "b", "c")
    other = area_under_curve([1.0, 0.0], [True, False], ["c", "a"], ["a", "b", "c"])
    assert difference(with_all, other).mean == 0.0


def test_estimates_are_json():
    found = bootstrap_mean([1.0, 2.0], ["a", "b"])
    assert Estimate.model_validate_json(found.model_dump_json()) == found


# -- over seeds --------------------------------------------------------------------------------------------------------


def student_quantile(p, degrees):
    """Student's t by bisection of P(|T| < t), which is a finite sum (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4), in
    theta = arctan(t / sqrt(degrees))."""

    def within(theta):
        sine, cosine, odd = math.sin(theta), math.cos(theta), degrees % 2
        term, total = (cosine if odd else 1.0), 0.0
        for power in range(odd, degrees - 1, 2):
            total += term
            term *= cosine**2 * (power + 1) / (power + 2)
        return (theta + sine * total) * 2 / math.pi if odd else sine * total

    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 2 * p - 1 else (low, middle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 10, 31, 100])
def test_student_intervals_have_the_quantiles_of_the_finite_sum(degrees):
    values = [float(place % 7) for place in range(degrees + 1)]
    error = math.sqrt(np.var(values, ddof=1) / len(values))
    for p in (0.6, 0.9, 0.975, 0.999):
        interval = student(values, level=2 * p - 1)
        assert interval.high - interval.mean == pytest.approx(student_quantile(p, degrees) * error, rel=1e-9, abs=1e-12)
        assert interval.mean - interval.low == pytest.approx(interval.high - interval.mean)


def test_student_by_hand():
    found = student([1.0, 3.0], level=0.5)  # t_1 at 0.75 is tan(pi / 4) = 1; the standard error is sqrt(2) / sqrt(2)
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((2.0, 1.0, 3.0, 2))
    assert student([0.0, 0.0, 0.0]) == Estimate(mean=0.0, low=0.0, high=0.0, n=3, groups=3)
    assert student([4.0]).low is None
    assert student([4.0]).note == "one value only: no interval"
    assert student([]) == Estimate(mean=None, note="no values")
    for level in (1.0, 0.0, -0.2):
        with pytest.raises(ValueError, match="between 0 and 1"):
            student([1.0, 2.0, 3.0], level=level)


def test_a_mean_over_runs_draws_the_same_prompts_of_each():
    generator = np.random.default_rng(1)
    ids = [str(place) for place in range(20)]
    one, two = generator.random(20), generator.random(20)
    shuffled = generator.permutation(20)
    parts = [weighted_mean(one, ids), weighted_mean(two[shuffled], [ids[place] for place in shuffled])]
    found = estimate(averaged(parts))
    whole = estimate(weighted_mean([*one, *two], [*ids, *ids]))  # of means it is the mean of all
    assert [found.mean, found.low, found.high, found.n] == pytest.approx([whole.mean, whole.low, whole.high, whole.n])
    with pytest.raises(ValueError, match="same prompts"):
        averaged([parts[0], weighted_mean([1.0], ["other"])])
    with pytest.raises(ValueError, match="nothing"):
        averaged([])


def test_runs_are_not_mixed_where_a_statistic_looks_across_answers():
    """The scores of the two runs lie on scales of their own: each finds everything, all together would not."""
    ids = ["a", "b", "c", "d"]
    parts = [area_under_curve([s, s, s + 1, s + 1], [False, False, True, True], ids) for s in (0.0, 100.0)]
    found = averaged(parts)
    assert value_of(found) == 1.0
    assert (found.n, found.positives) == (8, 4)
    assert auc([0, 0, 1, 1, 100, 100, 101, 101], [False, False, True, True] * 2) < 1.0


def test_a_value_that_is_missing_or_undefined_is_none():
    assert value_of(weighted_mean([None], ["a"])) is None
    assert value_of(weighted_mean([1.0], ["a"], [0.0])) is None
    assert value_of(weighted_mean([1.0, 2.0], ["a", "b"])) == 1.5
    assert estimate(averaged([weighted_mean([1.0], ["a"]), weighted_mean([None], ["a"])])).note == "no values"


def test_a_combination_adds_squares_between_sources_and_distances_within_one():
    wide, narrow = Estimate(mean=0.5, low=0.2, high=0.9, n=10), Estimate(mean=0.1, low=0.06, high=0.13, n=5)
    found = combined([("a", 0.5, wide), ("b", 0.5, narrow)])
    assert found.mean == pytest.approx(0.3)
    assert found.low == pytest.approx(0.3 - math.hypot(0.15, 0.02))
    assert found.high == pytest.approx(0.3 + math.hypot(0.2, 0.015))
    assert found.n == 15
    same = combined([("a", 0.5, wide), ("a", 0.5, narrow)])
    assert (same.low, same.high) == (pytest.approx(0.3 - 0.17), pytest.approx(0.3 + 0.215))
    alone = combined([("a", 1.0, wide)])
    assert (alone.mean, alone.low, alone.high) == pytest.approx((0.5, 0.2, 0.9))


def test_a_combination_of_independent_means_has_the_interval_of_their_mean():
    """Normal means of 400 values each: the half width is that of the mean of both."""
    rng = np.random.default_rng(0)
    parts = [weighted_mean(list(rng.normal(size=400)), range(400)) for _ in range(2)]
    found = combined([(number, 0.5, estimate(part)) for number, part in enumerate(parts)])
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * math.sqrt(1 / 800), rel=0.1)


def test_a_combination_misses_what_a_part_misses():
    known, missing = Estimate(mean=0.5, low=0.4, high=0.6, n=3), Estimate(mean=None, n=1, note="no values")
    assert combined([("a", 0.5, known), ("b", 0.5, missing)]) == Estimate(mean=None, n=4, note="no values")
    single = combined([("a", 0.5, known), ("b", 0.5, Estimate(mean=0.25, n=1))])
    assert (single.mean, single.low, single.note) == (0.375, None, "a part has no interval")


def test_a_negative_weight_subtracts_and_exchanges_the_ends_of_its_interval():
    after, before = Estimate(mean=0.5, low=0.4, high=0.7), Estimate(mean=0.2, low=0.1, high=0.6)
    change = combined([("after", 1, after), ("before", -1, before)])
    assert change.mean == pytest.approx(0.3)
    assert change.low == pytest.approx(0.3 - math.hypot(0.1, 0.4))
    assert change.high == pytest.approx(0.3 + math.hypot(0.2, 0.1))
