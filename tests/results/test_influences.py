"""Correlations and importances of a sweep's parameters, against numpy and against a number that one parameter decides."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fgrl.measuring.statistics import Estimate
from fgrl.runs.results.influences import LEAST, influences
from fgrl.runs.results.sweep_records import PointRecord, SweepRecord


def sweep(count: int, seed: int = 0) -> SweepRecord:
    """The number falls with the KL coefficient, and hardly knows lambda; the word has no numbers."""
    draw = random.Random(seed)
    points = []
    for number in range(1, count + 1):
        parameters = {"a.kl_coef": draw.random(), "a.lam": draw.random(), "word": draw.choice("xy"), "seed": number}
        mean = 3 - 2 * parameters["a.kl_coef"] + 0.05 * parameters["a.lam"]
        value, seconds = Estimate(mean=mean, n=9), draw.random()
        points.append(PointRecord(number=number, parameters=parameters, state="finished", value=value, seconds=seconds))
    return SweepRecord(
        id="s-12345678", name="s", recipe="r.yaml", method="random", metric="score",
        varied=["a.kl_coef", "a.lam", "word", "seed"], threads=1, started="2026-05-01T09:30:00Z", points=points,
    )  # fmt: skip


def test_correlations_are_numpy_s_and_importances_add_up_to_one() -> None:
    record = sweep(40)
    found = {each.name: each for each in influences(record)}
    assert next(iter(found)) == "a.kl_coef"
    assert found.keys() == {"a.kl_coef", "a.lam", "seconds"}, "seeds and words are no hyper-parameters with numbers"
    numbers = [point.value.mean for point in record.points]
    for name in ("a.kl_coef", "a.lam"):
        wanted = np.corrcoef([point.parameters[name] for point in record.points], numbers)[0, 1]
        assert found[name].correlation == pytest.approx(wanted)
    assert found["a.kl_coef"].correlation < -0.99
    assert found["a.kl_coef"].importance > 0.9
    assert sum(each.importance for each in found.values()) == pytest.approx(1)
    assert influences(record) == influences(record), "the forest has a seed"


def test_nothing_is_said_of_few_points_and_of_equal_numbers() -> None:
    assert influences(sweep(LEAST))
    assert not influences(sweep(LEAST - 1))
    record = sweep(LEAST)
    for point in record.points[1:]:
        point.state = "failed"
    assert not influences(record)
    same = sweep(LEAST)
    for point in same.points:
        point.value = Estimate(mean=1.0, n=9)
    assert not influences(same)
