"""The picture of a frontier, and its table."""

from __future__ import annotations

import re
from pathlib import Path

from frontier_runs import ALL, WIN, recipes_at

from fgrl.measuring.number_names import NumberName
from fgrl.pages.report.figures import draw_frontier as draw
from fgrl.pages.report.figures import frontier_rows as rows
from fgrl.pages.report.figures import title
from fgrl.runs.results.frontier import frontier
from fgrl.runs.results.table import table_of


def test_axes_have_names_for_people() -> None:
    assert title(NumberName("kl", "sum")) == "KL to the reference, nats per answer"
    assert title(NumberName(WIN, "length_adjusted")) == f"length adjusted ({WIN})"
    assert title(NumberName("marks", "mean")) == "marks"


def test_the_table_has_intervals_and_stars() -> None:
    head, start, first, *_ = rows(frontier(table_of(ALL), "kl.sum", "length_adjusted"))
    assert head[-2:] == ["kl.sum", f"{WIN}.length_adjusted"]
    assert start[:3] == ["*", "segment", "sft"]
    assert first[3] == "kl_coef 0.03"
    assert re.fullmatch(r"4\.00 \[3\.76 to 4\.24\]", first[4])


def test_the_picture_is_there_twice_and_says_what_it_shows(tmp_path: Path) -> None:
    svg, png = draw(frontier(table_of(ALL), "kl.sum", "length_adjusted"), tmp_path / "frontier")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    text = svg.read_text(encoding="utf-8")
    for word in (
        "segment",
        "token",
        "bandit",
        "KL to the reference, nats per answer",
        "labels: kl_coef",
        ">0.001<",
        ">sft<",
    ):
        assert word in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["frontier.png", "frontier.svg"]
    before = svg.read_bytes()
    draw(frontier(table_of(ALL), "kl.sum", "length_adjusted"), tmp_path / "frontier")
    assert svg.read_bytes() == before


def test_one_point_without_an_interval_is_drawn_too(tmp_path: Path) -> None:
    one = recipes_at((2.0, 0.5))
    for number in one[0].evaluations["e"].report["metrics"]["kl"]["policy"].values():
        number.update(low=None, high=None)
    draw(frontier(table_of(one), "kl.sum", "length_adjusted", ["policy"]), tmp_path / "one")
