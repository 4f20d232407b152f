"""The index page of a sweep: what it shows, offline, whatever its parameters and errors contain."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browsers import chromium

from fgrl.measuring.statistics import Estimate
from fgrl.pages.report import sweep_page
from fgrl.pages.report.sweep_plots import Shown, fits_heat_map, heat_map, response
from fgrl.runs.results.sweep_records import Lead, PointRecord, SweepRecord, write_sweep

HOSTILE = "<script>alert(1)</script>"


def point(number: int, parameters: dict[str, Any], mean: float | None, **more: Any) -> PointRecord:
    value = None if mean is None else Estimate(mean=mean, low=mean - 0.1, high=mean + 0.1, n=8)
    return PointRecord(
        **{"number": number, "parameters": parameters, "state": "finished", "exit": 0, "value": value, **more}
    )


def record(points: list[PointRecord], varied: list[str], **more: Any) -> SweepRecord:
    return SweepRecord(
        id="s-12345678", name="s", recipe="r.yaml", method="grid", metric="evaluate/rule.kept",
        varied=varied, threads=1, started="2026-05-01T09:30:00Z", points=points, **more,
    )  # fmt: skip


def page(tmp_path: Path, of: SweepRecord) -> str:
    folder = tmp_path / "runs" / "sweeps" / of.id
    folder.mkdir(parents=True)
    write_sweep(folder, of)
    return sweep_page.write(folder).read_text(encoding="utf-8")


def grid(values: list[float]) -> list[PointRecord]:
    cells = [(a, b) for a in (1, 2) for b in (0.1, 0.2)]
    return [
        point(number, {"vars.a": a, "vars.b": b}, value)
        for number, ((a, b), value) in enumerate(zip(cells, values, strict=True), start=1)
    ]


def test_a_grid_is_a_heat_map_with_its_best_point(tmp_path: Path) -> None:
    own = record(grid([0.2, 0.5, 0.3, 0.4]), ["vars.a", "vars.b"])
    own.lead = Lead(best=[2], second=[4], difference=Estimate(mean=0.1, low=0.02, high=0.18))
    text = page(tmp_path, own)
    shades = [float(shade) for shade in re.findall(r'<g class="cell"><path [^>]*opacity="([\d.]+)"', text)]
    assert len(shades) == 4
    assert len(re.findall(r'<g class="best">', text)) == 1
    assert sorted(range(4), key=shades.__getitem__) == [0, 2, 3, 1], "the larger, the stronger"
    assert "Best: point 2 (a=1 b=0.2)" in text
    assert "one can tell them apart" in text
    assert 'class="reply good"' in text
    assert "luckiest" in text


def test_correlations_and_importances_are_on_the_page(tmp_path: Path) -> None:
    values = {(a, b): 1.0 + a for a in range(3) for b in range(3)}
    points = [point(n, {"vars.a": a, "vars.b": b}, mean) for n, ((a, b), mean) in enumerate(values.items(), start=1)]
    text = page(tmp_path, record(points, ["vars.a", "vars.b"]))
    assert re.search(r"importance in a random forest: a \+1\.00, 0\.9\d; b \+0\.00, 0\.0\d\.", text)
    assert "Correlation" not in page(tmp_path / "few", record(points[:4], ["vars.a", "vars.b"]))


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    own = record(grid([0.2, 0.5, 0.3, 0.4]), ["vars.a", "vars.b"], goal="minimize")
    own.lead = Lead(best=[1], second=[3], difference=Estimate(mean=-0.1, low=-0.3, high=0.1))
    text = page(tmp_path, own)
    assert "Best: point 1" in text
    assert "one cannot tell them apart on these prompts" in text
    assert 'class="reply unsure"' in text


def test_points_that_differ_in_their_seeds_are_one_setting(tmp_path: Path) -> None:
    points = [
        point(number, {"vars.a": a, "seed": seed}, value)
        for number, (a, seed, value) in enumerate(
            [(1, 0, 0.9), (1, 1, 0.1), (2, 0, 0.6), (2, 1, 0.6), (3, 0, 5.0)], start=1
        )
    ]
    own = record(points, ["vars.a", "seed"])
    assert [[each.number for each in group] for group in own.settings()] == [[3, 4], [1, 2]], (
        "the third waits for a seed"
    )
    assert "0.6 (mean over 2 seeds)" in page(tmp_path, own)


def test_errors_parameters_and_names_are_escaped_and_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    points = [
        point(1, {"vars.a": HOSTILE, "vars.b": 1, "vars.c": True}, 0.5),
        point(2, {"vars.a": "x\u202ey", "vars.b": 2, "vars.c": False}, 0.6),
        point(3, {"vars.a": "z", "vars.b": 2, "vars.c": False}, None, state="failed", exit=3, error=f"data: {HOSTILE}"),
        point(4, {"vars.a": "z", "vars.b": 3, "vars.c": False}, None, state="stopped early", reported=[(2, 0.1)]),
    ]
    own = record(points, ["vars.a", "vars.b", "vars.c"], about=HOSTILE, file=HOSTILE, command=["fgrl", HOSTILE])
    text = page(tmp_path, own)
    assert "<script" not in text
    assert "\u202e" not in text
    assert text.count("&lt;script&gt;") >= 5
    assert "failed, exit code 3" in text
    assert "stopped early after 2 values" in text
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)


def test_a_sweep_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    text = page(tmp_path, record([point(1, {"a": 1}, None, state="waiting", exit=None)], []))
    assert "0 of 1 points done" in text


LEGIBLE = """texts => texts.filter(text => text.textContent.trim()).map(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
"""Heights of texts in pixels of the screen."""
CONTRAST = """cells => cells.map(cell => {
    const colour = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number)
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0)
    const share = parseFloat(cell.getAttribute("opacity"))
    const behind = colour(getComputedStyle(document.body).backgroundColor)
    const filled = colour(getComputedStyle(cell).fill).map((c, place) => share * c + (1 - share) * behind[place])
    const [low, high] = [filled, colour(getComputedStyle(cell.closest("svg").querySelector("text[fill='var(--ink)']")).fill)].map(light).sort((a, b) => a - b)
    return (high + 0.05) / (low + 0.05)
})"""
"""Contrast of cells with their texts, as in WCAG."""


def test_its_plots_can_be_read_on_a_phone_and_in_the_dark(tmp_path: Path) -> None:
    over_one = [point(number, {"vars.a": number / 10}, number / 10) for number in range(1, 6)]
    words = ("even", "repeat_the_whole_reward", "last")
    over_three = [point(n, {"vars.a": n, "vars.b": words[n % 3], "seeds": n % 2 == 0}, n / 10) for n in range(1, 8)]
    pages = {
        "heat map": record(grid([0.2, 0.5, 0.3, 0.4]), ["vars.a", "vars.b"]),
        "one": record(over_one, ["vars.a"]),
        "three": record(over_three, ["vars.a", "vars.b", "seeds"]),
    }
    with chromium() as browser:
        for name, own in pages.items():
            page(tmp_path / name, own)
            address = (tmp_path / name / "runs" / "sweeps" / own.id / "index.html").as_uri()
            for scheme, width in (("light", 1200), ("dark", 1200), ("light", 390)):
                shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                shown.goto(address)
                assert shown.evaluate("document.documentElement.scrollWidth") == width, (
                    name,
                    "the plot scrolls, not the page",
                )
                assert min(shown.eval_on_selector_all("#map svg text", LEGIBLE)) >= 10, (name, width)
                if name == "heat map":
                    contrasts = shown.eval_on_selector_all(".cell path", CONTRAST)
                    assert len(contrasts) == 4
                    assert min(contrasts) >= 4.5, scheme
                shown.close()


@pytest.mark.parametrize(
    "svg",
    [
        response([Shown((0.001,), 1.0, 0.5, 1.5, True), Shown((1.0,), 2.0, None, None, False)], 0, "lr"),
        response([Shown((2,), 1.0, None, None, True)], 0, "n"),
        heat_map([Shown(("<a>", 1), 1.0, None, None, True)], ("<x>", "y"), better="maximize"),
        response([Shown((3, "<a>"), 1.0, 0.0, 2.0, True), Shown((3, None), 1.0, 0.0, 2.0, False)], 1, "x"),
    ],
)  # fmt: skip
def test_each_plot_is_well_formed(svg: str) -> None:
    root = ElementTree.fromstring(str(svg))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for element in root.iter():
        for name, most in (("x", width), ("y", height), ("cx", width), ("cy", height)):
            if name in element.attrib:
                assert -1 <= float(element.attrib[name]) <= most + 60
    assert root.attrib["aria-label"]


def test_more_words_than_there_is_room_for_are_cut_to_one_letter() -> None:
    svg = str(response([Shown((f"word {number}",), 1.0, None, None, False) for number in range(100)], 0, "x"))
    assert "…" in svg
    assert "word" not in svg


def test_only_a_table_that_is_mostly_filled_is_a_heat_map() -> None:
    def shown(pairs: list[tuple[Any, Any]]) -> list[Shown]:
        return [Shown(pair, 1.0, None, None, False) for pair in pairs]

    assert fits_heat_map(shown([(a, b) for a in range(4) for b in range(4)]))
    assert not fits_heat_map(shown([(a / 7, a / 3) for a in range(6)]))
