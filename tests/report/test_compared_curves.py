"""One metric of several trainings in one plot of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_runs import fake_run, write_lines
from pages import HOSTILE, assert_safe, page, stage

from fgrl.pages.report import plots
from fgrl.runs.series import Series


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_run(tmp_path, prompts=2, points=3, steps=3)


def log(run: Path, name: str, **metrics: list[float | None]) -> None:
    count = len(next(iter(metrics.values())))
    rows = [{"step": n} | {metric: values[n] for metric, values in metrics.items()} for n in range(count)]
    write_lines(stage(run, name) / "log.jsonl", rows)


def test_trainings_that_log_the_chosen_answers_are_in_one_plot(run: Path) -> None:
    log(run, "reward_model", logp_chosen=[-120.0, -130.0], margin=[0.0, 1.0])
    log(run, "policy", logp_chosen=[-120.0, -110.5], margin=[0.0, 2.0])
    text, parsed = page(run)
    assert_safe(text, parsed)
    drawn = re.findall(r'<div class="compared">.*?</div>', text, re.DOTALL)
    assert [re.findall(r'<h3 title="(\w+)"', figure) for figure in drawn] == [["logp_chosen"], ["margin"]]
    key = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", drawn[0].split("<ul")[1]))
    assert "reward_model −120 → −130" in key
    assert "policy −120 → −110.5" in key
    assert 'aria-label="reward_model from −120 to −130; policy from −120 to −110.5"' in drawn[0]
    assert re.findall(r'stroke="var\(--(s\d)\)"', drawn[0]) == ["s0", "s1", "s0", "s1"], "the lines, then the key"


def test_a_single_training_has_its_own_curves_alone(run: Path) -> None:
    log(run, "policy", logp_chosen=[-120.0, -110.5])
    assert '<div class="compared">' not in page(run)[0]


def test_more_trainings_than_lines_are_named() -> None:
    series = {f"s{n}": Series("logp_chosen", [0.0, 1.0], [0.0, float(n)]) for n in range(plots.MOST_SERIES + 2)}
    drawn = plots.compared(series)
    assert len(set(re.findall(r"var\(--(s\d)\)", drawn))) == plots.MOST_SERIES


@pytest.mark.parametrize("values", [[], [3.0], [0.0] * 400, [float(n % 7) for n in range(400)]])
def test_any_number_of_values_is_drawn(values: list[float]) -> None:
    own = Series("logp_chosen", [float(n) for n in range(len(values))], values)
    assert plots.compared({"a": own, "b": own}).startswith("<svg")


def test_names_of_stages_are_escaped_in_the_plot() -> None:
    for name in HOSTILE:
        drawn = plots.compared({name: Series("x", [0.0, 1.0], [0.0, 1.0])})
        assert "<script" not in drawn
        assert "<img" not in drawn
