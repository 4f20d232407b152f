"""Normalizers against scikit-learn, closed forms, and their errors."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fgrl.base import ops
from fgrl.base.errors import DataError
from fgrl.components.normalizers.constant import Global, Last
from fgrl.components.normalizers.location import Location
from fgrl.components.normalizers.none import NoNormalizer
from fgrl.kinds import Normalizer
from fgrl.types import Ref

NAN = float("nan")


def calibration(seed: int = 0, rows: int = 400, most: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rewards whose mean and spread grow with log p, locations, and valid [B,S]; junk where not valid."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.randint(1, most + 1, (rows, 1), generator=generator)
    valid = torch.arange(most) < count
    p = ops.locations(valid)
    x = torch.where(valid, p, 1.0).log().float()
    noise = torch.randn(rows, most, generator=generator)
    noise = torch.where(torch.rand(rows, most, generator=generator) < 0.02, noise * 15, noise)  # outliers
    rewards = 0.5 + 0.8 * x + (2.0 + 0.3 * x) * noise
    return rewards.masked_fill(~valid, NAN), p, valid


def points_by_numpy(rewards: torch.Tensor, p: torch.Tensor, valid: torch.Tensor) -> list[np.ndarray]:
    """Appendix F in plain loops: location (3 decimals), mean, population std, count."""
    groups: dict[float, list[float]] = {}
    for reward, place, real in zip(
        rewards.flatten().tolist(), p.flatten().tolist(), valid.flatten().tolist(), strict=True
    ):
        if real:
            groups.setdefault(float("%.3f" % place), []).append(reward)  # noqa: UP031
    places = sorted(groups)
    return [
        np.array(places),
        np.array([np.mean(groups[place]) for place in places]),
        np.array([np.std(groups[place]) for place in places]),
        np.array([len(groups[place]) for place in places]),
    ]


def fit(normalizer: Normalizer, *data: torch.Tensor) -> dict:
    stats = normalizer.fit(*data)
    assert json.loads(json.dumps(stats)) == stats, "statistics are written as JSON and read back"
    return stats


def lines(stats: dict) -> list[float]:
    return [stats[key] for key in ("w_mean", "b_mean", "w_std", "b_std")]


def test_huber_fit_is_scikit_learns():
    from sklearn.linear_model import HuberRegressor

    data = calibration()
    places, mean, std, _ = points_by_numpy(*data)
    expected = []
    for target in (mean, std):
        line = HuberRegressor(epsilon=1.35, alpha=1e-4).fit(np.log(places)[:, None], target)
        expected += [line.coef_[0], line.intercept_]
    stats = fit(Location(), *data)
    assert lines(stats) == pytest.approx(expected, rel=1e-4)
    assert lines(fit(Location(regression="ols"), *data)) != pytest.approx(expected, rel=1e-2)


def test_ols_fit_is_the_closed_form():
    data = calibration(1)
    places, mean, std, _ = points_by_numpy(*data)
    design = np.stack([np.log(places), np.ones_like(places)], axis=1)
    expected = np.concatenate([np.linalg.solve(design.T @ design, design.T @ target) for target in (mean, std)])
    assert lines(fit(Location(regression="ols"), *data)) == pytest.approx(expected, rel=1e-9)


def test_the_points_of_the_fit_are_kept():
    data = calibration(2)
    places, mean, std, count = points_by_numpy(*data)
    points = fit(Location(), *data)["points"]
    assert [point["p"] for point in points] == pytest.approx(places)
    assert [point["mean"] for point in points] == pytest.approx(mean)
    assert [point["std"] for point in points] == pytest.approx(std, abs=1e-9)
    assert [point["count"] for point in points] == count.tolist()
    assert all(point["used"] for point in points)


def test_locations_weigh_the_same_however_many_rewards_they_have():
    """Location 1 has 100 rewards, the others one each: an unweighted line goes through the middle of the points."""
    valid = torch.ones(103, 1, dtype=torch.bool)
    p = torch.tensor([math.exp(-2.0), math.exp(-1.0), 0.5] + [1.0] * 100)[:, None]
    rewards = torch.tensor([0.0, 2.0, 1.0] + [5.0] * 100)[:, None]
    stats = fit(Location(regression="ols"), rewards, p, valid)
    x = np.log(np.round(p[:4, 0].double().numpy(), 3))
    slope, intercept = np.polyfit(x, [0.0, 2.0, 1.0, 5.0], 1)
    assert (stats["w_mean"], stats["b_mean"]) == pytest.approx((slope, intercept), rel=1e-6)


def test_rounding_groups_locations_and_never_reaches_zero():
    valid = torch.ones(1, 4, dtype=torch.bool)
    p = torch.tensor([[1 / 3000, 0.33333, 0.3334, 1.0]])
    stats = fit(Location(), torch.tensor([[0.0, 1.0, 3.0, 4.0]]), p, valid)
    assert [(point["p"], point["count"]) for point in stats["points"]] == [(0.001, 1), (0.333, 2), (1.0, 1)]
    assert stats["points"][1]["mean"] == 2.0
    assert stats["points"][1]["std"] == 1.0
    assert all(map(math.isfinite, lines(stats)))
    coarse = fit(Location(decimals=1), torch.tensor([[0.0, 1.0, 3.0, 4.0]]), p, valid)
    assert [point["p"] for point in coarse["points"]] == [0.1, 0.3, 1.0]


def test_rare_locations_can_be_left_out():
    valid = torch.ones(5, 1, dtype=torch.bool)
    p = torch.tensor([0.25, 0.5, 0.5, 1.0, 1.0])[:, None]
    rewards = torch.tensor([100.0, 1.0, 3.0, 4.0, 8.0])[:, None]
    stats = fit(Location(min_count=2), rewards, p, valid)
    assert [point["used"] for point in stats["points"]] == [False, True, True]
    assert stats["b_mean"] == pytest.approx(6.0)
    assert stats["b_mean"] + stats["w_mean"] * math.log(0.5) == pytest.approx(2.0)
    with pytest.raises(DataError, match=r"no location has 3 calibration rewards \(the most at one is 2\)"):
        Location(min_count=3).fit(rewards, p, valid)


@pytest.mark.parametrize("regression", ["huber", "ols"])
def test_points_on_a_line_are_fitted_exactly(regression: str):
    """Two locations always are; a robust solver on its own would shrink or fail."""
    valid = torch.ones(4, 2, dtype=torch.bool)
    p = torch.tensor([0.5, 1.0]).expand(4, 2)
    rewards = torch.tensor([[0.0, 3.0], [2.0, 9.0], [0.0, 3.0], [2.0, 9.0]])
    stats = fit(Location(regression=regression), rewards, p, valid)
    half = math.log(0.5)
    assert lines(stats) == pytest.approx([-5 / half, 6.0, -2 / half, 3.0])
    normalized = Location().apply(rewards, p, valid, stats)
    torch.testing.assert_close(normalized, torch.tensor([[-1.0, -1.0], [1.0, 1.0]] * 2))


@pytest.mark.parametrize("regression", ["huber", "ols"])
def test_one_location_gives_constants_and_says_so(regression: str):
    valid = torch.ones(3, 1, dtype=torch.bool)
    rewards = torch.tensor([[1.0], [2.0], [6.0]])
    stats = fit(Location(regression=regression), rewards, torch.ones(3, 1), valid)
    assert lines(stats) == pytest.approx([0.0, 3.0, 0.0, math.sqrt(14 / 3)])
    assert "one location only (p = 1)" in stats["note"]
    assert "note" not in fit(Location(), *calibration())


def test_normalizing_by_location():
    stats = {"normalizer": "location", "w_mean": 2.0, "b_mean": 1.0, "w_std": 0.5, "b_std": 3.0, "min_std": 0.1}
    valid = torch.tensor([[True, True, False]])
    p = torch.tensor([[math.exp(-2.0), 1.0, 0.0]])
    out = Location().apply(torch.tensor([[5.0, 5.0, NAN]]), p, valid, stats)
    torch.testing.assert_close(out, torch.tensor([[(5 + 3) / 2.0, (5 - 1) / 3.0, 0.0]]))


def test_normalized_calibration_rewards_are_centred_at_every_location():
    rewards, p, valid = calibration(3, rows=3000)
    stats = Location().fit(rewards, p, valid)
    out = Location().apply(rewards, p, valid, stats)
    early, late = out[valid & (p < 0.2)], out[valid & (p > 0.9)]
    for part in (early, late):
        assert part.mean().abs() < 0.15
        assert 0.8 < part.std() < 1.3
    raw = rewards[valid & (p < 0.2)].mean() - rewards[valid & (p > 0.9)].mean()
    assert raw < -1, "the rewards themselves differ, so this is the normalizer's doing"


def test_the_floor_keeps_signs():
    """A std line that falls below zero at early locations must not turn good segments into bad ones."""
    stats = {"normalizer": "location", "w_mean": 0.0, "b_mean": 0.0, "w_std": 1.0, "b_std": 1.0, "min_std": 0.5}
    p = torch.tensor([[0.01, 0.3, 1.0]])  # fitted: -3.6, -0.2, 1
    valid = torch.ones(1, 3, dtype=torch.bool)
    rewards = torch.tensor([[2.0, 2.0, 2.0]])
    assert Location().apply(rewards, p, valid, stats).tolist() == [[4.0, 4.0, 2.0]]
    assert Location(min_std=0.25).apply(rewards, p, valid, stats).tolist() == [[8.0, 8.0, 2.0]]
    assert Location(min_std=4.0).apply(rewards, p, valid, stats).tolist() == [[0.5, 0.5, 0.5]]


def test_the_floor_is_part_of_the_fit_and_its_reach_is_reported():
    valid = torch.ones(4, 2, dtype=torch.bool)
    p = torch.tensor([0.5, 1.0]).expand(4, 2)
    rewards = torch.tensor([[1.0, 0.0], [1.0, 4.0], [1.0, 0.0], [1.0, 4.0]])  # std 0 at p = 0.5
    stats = fit(Location(), rewards, p, valid)
    assert stats["min_std"] == 0.1
    assert stats["floored"] == 0.5
    assert Location().apply(rewards, p, valid, stats)[:, 0].abs().max() < 1e-5
    wide = fit(Location(min_std=10.0), rewards, p, valid)
    assert (wide["min_std"], wide["floored"]) == (10.0, 1.0)


PUBLISHED = [0.7668, 0.2569, 0.4705, 2.8339]


def test_published_coefficients_need_no_calibration():
    normalizer = Location(coefficients=PUBLISHED)
    assert normalizer.ready()
    p, valid = torch.tensor([[0.1, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    out = normalizer.apply(torch.tensor([[1.0, 1.0]]), p, valid, None)
    x = math.log(0.1)
    expected = [(1 - (0.7668 * x + 0.4705)) / (0.2569 * x + 2.8339), (1 - 0.4705) / 2.8339]
    assert out[0].tolist() == pytest.approx(expected)
    with pytest.raises(DataError, match="nothing to calibrate"):
        normalizer.fit(*calibration())


@pytest.mark.parametrize(
    "settings",
    [
        {"coefficients": PUBLISHED[:3]},
        {"coefficients": [NAN, 0.0, 0.0, 1.0]},
        {"coefficients": PUBLISHED, "fitted": Ref("calibrate")},
        {"min_std": 0.0},
        {"regression": "lasso"},
        {"min_count": 0},
    ],
)
def test_location_refuses_nonsense(settings: dict):
    with pytest.raises(ValidationError):
        Location(**settings)


@pytest.mark.parametrize("normalizer", [Location(), Global(), Last()], ids=lambda n: type(n).__name__)
def test_a_missing_fit_says_which_stage_to_run(normalizer: Normalizer):
    assert not normalizer.ready()
    one = torch.ones(1, 1)
    with pytest.raises(DataError, match=r"has no fit: run a stage `name: calibrate`.*fitted"):
        normalizer.apply(one, one, one.bool(), None)
    with pytest.raises(DataError, match="was given a fit of 'other'"):
        normalizer.apply(one, one, one.bool(), {"normalizer": "other"})
    assert type(normalizer)(fitted=Ref("calibrate")).ready()


@pytest.mark.parametrize("normalizer", [Location(), Global(), Last()], ids=lambda n: type(n).__name__)
def test_unusable_calibration_data(normalizer: Normalizer):
    rewards, p = torch.tensor([[1.0, NAN]]), torch.tensor([[0.5, 1.0]])
    with pytest.raises(DataError, match="no segment rewards to calibrate on"):
        normalizer.fit(rewards, p, torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises(DataError, match=r"1 of \d calibration rewards are NaN or infinite"):
        normalizer.fit(rewards, p, torch.ones(1, 2, dtype=torch.bool))


VALID = torch.tensor([[True, True, True], [True, False, False], [False, False, False], [True, True, False]])
REWARDS = torch.tensor([[1.0, 2.0, 6.0], [4.0, NAN, NAN], [NAN, NAN, NAN], [-3.0, 8.0, NAN]])


def test_global_uses_all_segments_and_last_the_last_ones():
    p = ops.locations(VALID)
    every, final = [1.0, 2.0, 6.0, 4.0, -3.0, 8.0], [6.0, 4.0, 8.0]
    for normalizer, values in ((Global(), every), (Last(), final)):
        stats = fit(normalizer, REWARDS, p, VALID)
        assert stats["mean"] == pytest.approx(np.mean(values))
        assert stats["std"] == pytest.approx(np.std(values))
        assert (stats["rewards"], stats["responses"]) == (len(values), 3)
        out = normalizer.apply(REWARDS, p, VALID, stats)
        torch.testing.assert_close(out[VALID], (torch.tensor(every) - np.mean(values)) / np.std(values))
        assert not out[~VALID].any()


def test_one_reward_a_response_makes_global_the_classical_normalizer():
    rewards = torch.tensor([[1.0], [3.0], [8.0]])
    one = torch.ones(3, 1)
    for normalizer in (Global(), Last()):
        out = normalizer.apply(rewards, one, one.bool(), fit(normalizer, rewards, one, one.bool()))
        torch.testing.assert_close(out, (rewards - 4) / math.sqrt(26 / 3))


def test_equal_rewards_do_not_divide_by_zero():
    rewards = torch.full((4, 1), 2.0)
    one = torch.ones(4, 1)
    stats = fit(Global(), rewards, one, one.bool())
    assert stats["std"] == 0
    assert not Global().apply(rewards, one, one.bool(), stats).any()
    out = Global(min_std=0.5).apply(rewards + 1, one, one.bool(), stats)
    assert out.tolist() == [[2.0]] * 4


def test_known_mean_and_std_need_no_calibration():
    normalizer = Global(mean=-0.5195, std=2.156)
    assert normalizer.ready()
    one = torch.ones(1, 1)
    assert normalizer.apply(one, one, one.bool(), None).item() == pytest.approx((1 + 0.5195) / 2.156)
    for settings in (
        {"mean": 1.0},
        {"std": 1.0},
        {"mean": 0.0, "std": 0.0},
        {"mean": 0.0, "std": 1.0, "fitted": Ref("c")},
    ):
        with pytest.raises(ValidationError):
            Global(**settings)


def test_none_leaves_rewards_alone():
    normalizer = NoNormalizer()
    assert normalizer.ready()
    assert normalizer.fit(REWARDS, ops.locations(VALID), VALID) == {"normalizer": "none"}
    out = normalizer.apply(REWARDS, ops.locations(VALID), VALID, None)
    assert torch.equal(out[VALID], REWARDS[VALID])
    assert not out[~VALID].any()
    with pytest.raises(ValidationError, match="does not use `fitted`"):
        NoNormalizer(fitted=Ref("calibrate"))


@pytest.mark.parametrize(
    ("normalizer", "stats"),
    [
        (Location(coefficients=PUBLISHED), None),
        (Global(mean=0.5, std=2.0), None),
        (Last(mean=0.5, std=2.0), None),
        (NoNormalizer(), None),
    ],
    ids=["location", "global", "last", "none"],
)
@pytest.mark.parametrize("junk", [NAN, float("inf")])
def test_slots_without_a_segment_change_nothing(normalizer: Normalizer, stats: dict | None, junk: float):
    found = []
    for fill in (0.0, junk):
        rewards = torch.where(VALID, torch.arange(12.0).view(4, 3), fill).requires_grad_()
        p = torch.where(VALID, ops.locations(VALID), fill)
        out = normalizer.apply(rewards, p, VALID, stats)
        out.sum().backward()
        assert out.dtype == rewards.dtype
        found.append((out.detach(), rewards.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert not found[1][0][~VALID].any()
    assert found[1][0][VALID].any()


def test_only_fitting_imports_scikit_learn():
    import subprocess
    import sys

    code = (
        "import sys, torch\n"
        "from fgrl.components.normalizers.location import Location\n"
        "one = torch.ones(2, 1)\n"
        "Location(coefficients=[0., 0., 0., 1.]).apply(one, one, one.bool(), None)\n"
        "Location(regression='ols').fit(one, one, one.bool())\n"
        "assert 'sklearn' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("decimals", [1, 3])
def test_locations_are_grouped_as_they_are_printed(decimals: int) -> None:
    """3/80 is a little less than 0.0375, so the authors' release puts it to 0.037; 0.0375 x 1000 in float is 37.5."""
    lengths = torch.tensor([80, 400, 7, 1, 1200])
    valid = torch.arange(1200) < lengths[:, None]
    printed = {f"{(i + 1) / n:.{decimals}f}" for n in lengths.tolist() for i in range(n)}
    stats = fit(Location(decimals=decimals, regression="ols"), torch.rand(valid.shape), ops.locations(valid), valid)
    smallest = 10.0**-decimals  # what is printed as 0 has no logarithm
    assert [point["p"] for point in stats["points"]] == sorted({max(float(place), smallest) for place in printed})
    assert decimals == 1 or "0.037" in printed
    only = fit(
        Location(decimals=decimals), torch.rand(1, 80), ops.locations(valid[:1, :80]), torch.arange(80)[None] == 2
    )
    assert [point["p"] for point in only["points"]] == [max(float(f"{3 / 80:.{decimals}f}"), smallest)]
