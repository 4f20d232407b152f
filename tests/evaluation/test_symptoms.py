"""Symptoms of reward hacking are observed by every evaluation, and are in none of its tables unless a recipe names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from answer_helpers import answer_of

from fgrl import registry
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Metric
from fgrl.measuring import comparison
from fgrl.measuring.held_out import measure
from fgrl.measuring.number_names import METRICS
from fgrl.measuring.observations import FILE, refreshed
from fgrl.measuring.statistics import value_of
from fgrl.measuring.symptoms import SYMPTOMS, symptoms

know_components()
SAME = ["x"] * 4, [(0, 0)] * 4
ANSWERS = {
    "base": [answer_of(str(n), f"Say {n}", f"one two three {n}", *SAME, True, ref_logp=-4.0, kl=0.0) for n in range(8)],
    "policy": [answer_of(str(n), f"Say {n}", "so so so so", *SAME, n < 2, ref_logp=-6.0, kl=2.0) for n in range(8)],
}


def test_every_evaluation_stores_them_whatever_it_measures(tmp_path: Path) -> None:
    metric = registry.build(Metric, {"name": "length", "resamples": 100})
    measured, observed = measure([metric], ANSWERS, "base")
    assert set(measured) == {"length"}, "they are in no table"
    own = {
        model: {name: value_of(one) for name, one in numbers.items()}
        for model, numbers in observed.metrics[SYMPTOMS].numbers.items()
    }
    for name in ("length", "repetition"):
        numbers = registry.build(Metric, name).measure(ANSWERS, baseline="base")[name]
        for model in ANSWERS:
            assert {number: one["mean"] for number, one in numbers[model].items()} == {
                number: own[model][number] for number in numbers[model]
            }
    assert own["base"]["nats_per_token"] == pytest.approx(1.0)
    assert own["policy"] == pytest.approx(
        {"words": 4, "characters": 11, "tokens": 4, "empty": 0, "finished": 0.25, "distinct_1": 0.25, "distinct_2": 1 / 3,
         "copied": 1, "prompt": 0, "nats_per_token": 1.5, "kl": 0.5}
    )  # fmt: skip
    comparison.write(tmp_path, "base", measured, {}, observed)
    report = json.loads((tmp_path / METRICS).read_text())
    (tmp_path / FILE).write_text((tmp_path / FILE).read_text().replace("11.0", "12.0"))
    again = refreshed(report, tmp_path)["metrics"]
    assert set(again) == {"length"}, "also where its numbers are derived again"
    assert again["length"]["policy"]["characters"]["mean"] == 12


def test_what_was_not_recorded_is_missing() -> None:
    (given,) = [answer_of("1", "Say 1", "one")]
    missing = {name for name, number in symptoms([given]).items() if number.missing}
    assert missing == {"tokens", "finished", "distinct_2", "nats_per_token", "kl"}
