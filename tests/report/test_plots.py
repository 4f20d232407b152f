"""Where lines, grid and texts of the page's plots stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from fgrl.pages.report import plots
from fgrl.runs.series import Series


def lines(svg: str, kind: str) -> list[list[tuple[float, float]]]:
    """The points of the lines of a class."""
    found = re.findall(rf'<g class="{kind}"><path [^>]*\bd="M ([^"]*)"', svg)
    return [[tuple(map(float, spot.split())) for spot in path.split(" L ")] for path in found]  # type: ignore[misc]


def labels(svg: str, anchor: str) -> list[tuple[float, float, str]]:
    found = re.findall(rf'<text [^>]*text-anchor="{anchor}"[^>]* x="(.*?)" y="(.*?)">(.*?)</text>', svg)
    return [(float(x), float(y), text) for x, y, text in found]


def test_values_are_where_the_grid_and_its_labels_say() -> None:
    svg = str(plots.curve(Series("loss", [0.0, 2.0, 4.0], [0.2, 0.4, 0.3])))
    (line,) = lines(svg, "main")
    assert {text: x for x, _y, text in labels(svg, "middle")} == {
        "0": 42.0, "1": 95.0, "2": 148.0, "3": 201.0, "4": 254.0
    }  # fmt: skip
    assert [x for x, _y in line] == [42.0, 148.0, 254.0]
    rows = [float(text) for _x, _y, text in labels(svg, "end")]
    heights = {row: grid[0][1] for row, grid in zip(rows, lines(svg, "grid"), strict=True)}
    slope = (heights[0.4] - heights[0.2]) / 0.2
    assert [heights[0.2] + slope * (value - 0.2) for value in (0.2, 0.4, 0.3)] == pytest.approx(
        [y for _x, y in line], abs=0.15
    )
    assert [y - 3.8 for _x, y, _text in labels(svg, "end")] == pytest.approx(list(heights.values()), abs=0.15)
    (axis,) = lines(svg, "axis")
    assert sorted(axis) == [(42.0, 14.0), (42.0, 110.0)]


def test_a_plot_has_the_pages_colours_and_nothing_that_loads_or_names() -> None:
    svg = str(
        plots.curve(Series("loss", [float(n) for n in range(50)], [float(n % 7) for n in range(50)], broken=[3.0]))
    )
    assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', svg)) == {
        "none", *(f"var(--{name})" for name in ("muted", "grid", "line", "raw", "accent", "bad"))
    }  # fmt: skip
    assert not re.search(r"\bid=|href|style|url\(|<use|<image|<script|<defs|#", svg)
    assert "font-size" in svg
    assert svg == str(
        plots.curve(Series("loss", [float(n) for n in range(50)], [float(n % 7) for n in range(50)], broken=[3.0]))
    )


def test_a_plot_does_not_depend_on_those_before_it() -> None:
    """Curves of one size are drawn on the same axes."""
    short = Series("loss", [0.0, 1.0], [2e-5, 3e-5])
    long = Series("loss", [float(n) for n in range(900)], [float(n % 7) for n in range(900)], broken=[3.0])
    measured = Series("x", [0.0], [1.0], interval={0.0: (0.0, 2.0)})
    alone = []
    for series in (short, long, measured):
        plots._curve_axes.cache_clear()
        alone.append(plots.curve(series))
    assert [plots.curve(series) for series in (measured, long, short)] == alone[::-1]
    assert plots.curve(long, width=500, height=230) != alone[1] == plots.curve(long)


def test_the_same_plot_is_the_same_bytes_in_every_process() -> None:
    code = "from fgrl.pages.report import plots; from fgrl.runs.series import Series; print(plots.curve(Series('x', [0.0, 1.0], [0.0, 1.0])))"
    made = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert made[0].stdout == made[1].stdout
    assert made[0].stdout.startswith(b"<svg")


def test_peaks_of_a_long_curve_are_not_lost() -> None:
    values = [0.0] * 5000
    values[2345], values[4000] = 9.0, -9.0
    (line,) = lines(str(plots.curve(Series("loss", [float(n) for n in range(5000)], values))), "main")
    assert len(line) < 300
    flat = line[0][1]
    assert min(y for _x, y in line) < flat - 35
    assert max(y for _x, y in line) > flat + 35


def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_axis() -> None:
    points = [plots.Point(p, 1.0, 1.0) for p in (0.01, 0.1, 1.0)]
    svg = str(plots.fit(points, (0.2, 1.0), what="mean"))
    a, b, c = (
        float(spot) for spot in re.findall(r'd="M ([\d.]+)', svg.partition('class="bin"')[2].partition("</g>")[0])
    )
    assert b - a == pytest.approx(c - b, abs=0.15)
    (line,) = lines(svg, "main")
    assert line[0][0] == a
    assert line[-1][0] == c


@pytest.mark.parametrize(
    ("steps", "values"),
    [([1e20], [0.5]), ([0.0, 1.0], [1.0, 1.0 + 2.3e-16]), ([0.0, 1.0], [1e-300, -1e-300]), ([3.0], [5e-324]),
     ([0.0, 1.0], [1e29, -1e29])],
)  # fmt: skip
def test_no_range_is_too_small_or_too_large_for_an_axis(steps: list[float], values: list[float]) -> None:
    (line,) = lines(str(plots.curve(Series("loss", steps, values))), "main")
    assert len(line) == len(values)
    assert all(42 <= x <= 254 and plots.TOP <= y <= 110 for x, y in line)


@pytest.mark.parametrize(
    ("drawn", "names"),
    [
        (lambda: plots.curve(Series("x", [0.0], [1.0], interval={0.0: (0.0, 2.0)})), {"main", "dots", "band"}),
        (lambda: plots.fit([plots.Point(0.5, 1.0, 3.0), plots.Point(1.0, 2.0, 1.0, used=False)], None, what="std", floor=0.5),
         {"bin", "unused", "floor"}),
    ],
)  # fmt: skip
def test_every_kind_of_mark_is_there(drawn: Any, names: set[str]) -> None:
    assert names <= set(re.findall(r'<g class="(\w+)"><', str(drawn())))
