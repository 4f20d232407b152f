"""Means over the numbers of finished evaluations."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fgrl.base.errors import DataError
from fgrl.experiments.recipe import know_components
from fgrl.experiments.stages.average import AverageStage
from fgrl.kinds import Stage
from fgrl.measuring.statistics import Estimate
from fgrl.registry import build
from fgrl.runs.results.numbers import measures


def number(mean: float, reach: float = 0.1) -> dict[str, Any]:
    return Estimate(mean=mean, low=mean - reach, high=mean + reach, n=10).model_dump()


REPORTS = {
    "trivia": {
        "baseline": "base",
        "metrics": {
            "exact_match": {"base": {"exact_match": number(0.2)}, "policy": {"exact_match": number(0.4)},
                            "differences": {"policy": {"exact_match": number(0.2, 0.05)}}},
            "bleu": {"base": {"bleu": number(30.0, 10)}, "policy": {"bleu": number(50.0, 10)},
                     "differences": {"policy": {"bleu": number(20.0, 5)}}, "about": "corpus"},
        },
    },
    "climate": {
        "baseline": "base",
        "metrics": {
            "yes_no": {"base": {"accuracy": number(0.6), "f1": number(0.5)},
                       "policy": {"accuracy": number(0.9), "f1": number(0.7)},
                       "differences": {"policy": {"accuracy": number(0.3), "f1": number(0.2)}}},
        },
    },
    "tasks": {"baseline": "other", "metrics": {"arc": {"base": {"acc": number(0.4)}}}},
}  # fmt: skip
TRIVIA = [
    {"of": "${out:trivia}", "numbers": ["exact_match"]},
    {"of": "${out:trivia}", "numbers": ["bleu"], "scale": 0.01},
]


def run(folder: Path, **averages: Any) -> dict[str, Any]:
    """`metrics.json` of a stage with these averages."""
    know_components()
    stage = build(Stage, {"name": "average", "averages": averages})
    assert isinstance(stage, AverageStage)
    for name, report in REPORTS.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "metrics.json").write_text(json.dumps(report))
    summary = stage.run(SimpleNamespace(path=lambda ref: folder / ref.stage, out=folder))  # type: ignore[arg-type]
    written = json.loads((folder / "metrics.json").read_text())
    assert summary["averages"] == list(averages)
    return written | {"measured": summary["measured"]}


def test_a_mean_of_several_numbers_each_on_the_scale_of_the_others(tmp_path: Path) -> None:
    written = run(tmp_path, trivia_qa=TRIVIA)
    assert written["baseline"] == "base"
    average = written["metrics"]["trivia_qa"]
    assert average["base"]["average"]["mean"] == pytest.approx((0.2 + 0.3) / 2)
    assert average["policy"]["average"]["mean"] == pytest.approx((0.4 + 0.5) / 2)
    assert average["differences"]["policy"]["average"]["mean"] == pytest.approx((0.2 + 0.2) / 2)
    assert average["differences"]["policy"]["average"]["low"] == pytest.approx(0.2 - 0.05), "of one evaluation: added"
    assert average["about"] == "mean of trivia/exact_match, trivia/bleu"
    (number,) = measures(written)
    assert str(number.name) == "trivia_qa.average"
    assert [(own.model, own.value.mean) for own in number.models] == [
        ("base", pytest.approx(0.25)),
        ("policy", pytest.approx(0.45)),
    ]
    assert written["measured"]["trivia_qa.average"] == pytest.approx(0.45)


def test_numbers_of_different_evaluations_vary_independently(tmp_path: Path) -> None:
    parts = [
        {"of": "${out:trivia}", "numbers": ["exact_match"]},
        {"of": "${out:climate}", "numbers": ["yes_no.accuracy"]},
    ]
    average = run(tmp_path, all=parts)["metrics"]["all"]["policy"]["average"]
    assert average["mean"] == pytest.approx(0.65)
    assert average["low"] == pytest.approx(0.65 - math.hypot(0.05, 0.05))


def test_models_and_baselines_that_are_not_everywhere(tmp_path: Path) -> None:
    written = run(
        tmp_path, both=[{"of": "${out:trivia}", "numbers": ["exact_match"]}, {"of": "${out:tasks}", "numbers": ["arc"]}]
    )
    assert written["baseline"] is None
    assert set(written["metrics"]["both"]) == {"base", "differences", "about"}
    assert written["metrics"]["both"]["differences"] == {}


def test_differences_to_different_baselines_are_not_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REPORTS, "climate", REPORTS["climate"] | {"baseline": "other"})
    parts = [
        {"of": "${out:trivia}", "numbers": ["exact_match"]},
        {"of": "${out:climate}", "numbers": ["yes_no.accuracy"]},
    ]
    written = run(tmp_path, all=parts, trivia=parts[:1])
    assert written["metrics"]["all"]["differences"] == {}
    assert set(written["metrics"]["trivia"]["differences"]) == {"policy"}


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'averages\.x: trivia: no evaluation has a number "rouge"'):
        run(tmp_path, x=[{"of": "${out:trivia}", "numbers": ["rouge"]}])
    with pytest.raises(DataError, match="may mean"):
        run(tmp_path, x=[{"of": "${out:climate}", "numbers": ["yes_no"]}])
