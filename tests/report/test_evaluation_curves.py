"""Curves of evaluations while a model trains: first, with their intervals, the ends of which are no curves of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_runs import fake_run, write_lines
from pages import assert_safe, page, stage

from fgrl.pages.report import plots
from fgrl.runs.run import Run
from fgrl.runs.series import Series


def evaluation(step: int, value: float, low: float | None, high: float | None) -> dict[str, float]:
    ends = {"held_out/rubric.csr/low": low, "held_out/rubric.csr/high": high}
    return {"step": step, "held_out/rubric.csr": value} | {name: end for name, end in ends.items() if end is not None}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = fake_run(tmp_path, prompts=4, points=10, steps=30)
    rows = [
        {"step": step, "reward": float(step), "loss": 1.0, **{f"reward/{n}": 1.0 for n in range(9)}}
        for step in range(6)
    ]
    rows += [evaluation(0, 0.25, 0.125, 0.375), evaluation(3, 0.5, 0.25, 0.75), evaluation(6, 0.75, None, None)]
    write_lines(stage(folder, "policy") / "log.jsonl", rows)
    return folder


def test_an_interval_belongs_to_its_number(run: Path) -> None:
    series = {
        series.name: series for stage in Run(run).stages.values() if stage.name == "policy" for series in stage.series
    }
    assert not any(name.endswith(("/low", "/high")) for name in series)
    assert series["held_out/rubric.csr"].steps == [0, 3, 6]
    assert series["held_out/rubric.csr"].interval == {0: (0.125, 0.375), 3: (0.25, 0.75)}
    assert series["reward"].interval == {}


def test_evaluations_come_first_and_show_their_intervals(run: Path) -> None:
    text, parsed = page(run)
    assert_safe(text, parsed)
    captions = re.findall(r'<figcaption><span title="(.*?)"', text)
    assert captions.index("held_out/rubric.csr") < captions.index("reward")
    assert text[text.index('id="curves"') :].count('<g class="band">') == 1


def test_one_end_alone_is_a_curve_like_any_other(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, prompts=4, points=10, steps=30)
    write_lines(stage(folder, "policy") / "log.jsonl", [{"step": 0, "a/b": 1.0, "a/b/low": 0.5}])
    names = [series.name for each in Run(folder).stages.values() if each.name == "policy" for series in each.series]
    assert names == ["a/b", "a/b/low"]


def test_the_band_encloses_the_curve_and_stays_inside_the_plot() -> None:
    series = Series("x", [0.0, 1.0, 2.0], [0.4, 0.6, 0.5], interval={0.0: (0.0, 1.0), 1.0: (0.5, 0.7), 2.0: (0.1, 0.9)})
    svg = str(plots.curve(series))
    band = re.search(r'<g class="band">.*?d="M ([^"]*) z" transform="translate\(0 ([\d.]+)\)"', svg)
    assert band
    path, shift = band.groups()
    points = [tuple(map(float, point.split())) for point in path.split(" L ")]
    dots = re.search(r'<g class="dots">(.*?)</g></g>', svg)
    assert dots
    found = [tuple(map(float, dot)) for dot in re.findall(r"translate\(([\d.]+) ([\d.]+)\)", dots[1])]
    assert len(found) == 3
    for x, y in found:
        low, *_, high = sorted((up + float(shift) for at, up in points if at == x), reverse=True)
        assert low > y > high, "pixels grow downwards"
        assert plots.TOP - 1 <= high <= low <= 130 - plots.BOTTOM + 1


def test_steps_are_whole_numbers_on_the_axis() -> None:
    for last in (1.0, 2.0, 3.0, 6.0, 40.0):
        svg = str(plots.curve(Series("x", [0.0, last], [0.4, 0.6])))
        labels = re.findall(r'<text[^>]*text-anchor="middle"[^>]*>(.*?)</text>', svg)
        assert len(labels) >= 2
        assert all(re.fullmatch(r"\d+", label) for label in labels), labels
