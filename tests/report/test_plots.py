"""Where lines, grid and texts of the page's plots stand."""

from __future__ import annotations

import re

import pytest

from fgrl.report import plots
from fgrl.results.series import Series


def lines(svg: str, kind: str) -> list[list[tuple[float, ...]]]:
    return [
        [tuple(map(float, spot.split())) for spot in path.split("L")]
        for path in re.findall(rf'<path class="{kind}" d="M([^"]*)"', svg)
    ]


def labels(svg: str, anchor: str) -> list[tuple[float, float, str]]:
    found = re.findall(rf'<text text-anchor="{anchor}" x="(.*?)" y="(.*?)">(.*?)</text>', svg)
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
    assert [heights[value] for value in (0.2, 0.4, 0.3)] == pytest.approx([y for _x, y in line], abs=0.1)
    assert [y - 3.8 for _x, y, _text in labels(svg, "end")] == pytest.approx(list(heights.values()), abs=0.1)
    (axis,) = lines(svg, "axis")
    assert axis == [(42.0, 110.0), (254.0, 110.0)]


def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_axis() -> None:
    points = [plots.Point(p, 1.0, 1.0) for p in (0.01, 0.1, 1.0)]
    svg = str(plots.fit(points, (0.2, 1.0), what="mean"))
    a, b, c = (float(x) for x in re.findall(r'<circle class="bin" cx="(.*?)"', svg))
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
