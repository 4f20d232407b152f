"""Pages with measured numbers say what the committed lines say, all of them, and which lines are older than their recipe."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_blocks import ROOT

FOLDER = ROOT / "benchmarks" / "evidence"
sys.path.insert(0, str(FOLDER))

import evidence  # noqa: E402
import evidence_lines  # noqa: E402
import evidence_pages  # noqa: E402
import evidence_verdicts  # noqa: E402
from evidence_lines import Line  # noqa: E402

PAGES = evidence_pages.pages()


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return evidence_lines.lines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.file.stem)
def test_a_page_has_the_numbers_of_the_lines_and_no_others(page: evidence_pages.Page, lines: list[Line]) -> None:
    """After new lines, or a recipe that changed: `python benchmarks/evidence/evidence.py write`, and read the sentences again."""
    text = page.path.read_text(encoding="utf-8")
    assert page.written(text, lines) == text
    assert page.without_line(text) == []


def test_every_line_has_a_number_and_what_was_recorded_from_a_page_is_on_it(lines: list[Line]) -> None:
    used = {line.place for page in PAGES for line in page.used(lines)}
    assert [line for line in lines if line.recorded_from_page and line.place not in used] == []
    assert len({line.place for line in lines}) == len(lines)
    for line in lines:
        assert line.values or line.mean is not None, line
        assert not line.values or len(line.values) == len(line.seeds), line


def test_margins_are_those_that_follow_from_the_pilots() -> None:
    """They are stated before the runs: a pilot's lines stay as they were."""
    text = evidence_verdicts.MARGINS.read_text(encoding="utf-8")
    assert evidence_verdicts.with_plans(text) == text
    stated = evidence_verdicts.stated()
    for each in stated["toy"]["lines"] + stated["smollm2"]["lines"]:
        assert {"margin", "pilot", "spread", "seeds", "hours"} <= each.keys()


def test_the_page_has_the_verdicts_of_todays_lines(capsys: pytest.CaptureFixture[str]) -> None:
    text = evidence_verdicts.TOY.read_text(encoding="utf-8")
    assert evidence_verdicts.with_table(text) == text
    evidence.verdicts(argparse.Namespace())
    said = capsys.readouterr().out.splitlines()[2:]
    stated = evidence_verdicts.stated()
    assert len(said) == len(stated["toy"]["lines"]) + len(stated["smollm2"]["lines"])


def test_new_seeds_take_the_place_of_the_pilots() -> None:
    def runs(*values: float) -> dict[int, dict[str, float]]:
        return {seed: {"policy.right": value, "processor seconds": 36.0} for seed, value in enumerate(values)}

    names = {
        side for claim in evidence_verdicts.benchmark.read("claims.yaml") for side in (claim["more"], claim["than"])
    }
    tasks = evidence_verdicts.benchmark.read("plan.yaml")["claims"]["tasks"]
    old = {name: runs(0.5, 0.6) for name in names} | {"oracle": runs(0.9, 1.0), "even": runs(0.7, 0.8)}
    pilot = dict.fromkeys(tasks, old)
    new = {tasks[1]: {"rtt": runs(0.9, 0.9, 0.7), "rtt_scalar": runs(0.5, 0.6, 0.5)}}
    found = {(each.more, each.than, each.where): each for each in evidence_verdicts.toy(pilot, new)}
    one, other = (found["rtt", "rtt_scalar", task] for task in tasks)
    assert (one.values, one.change.seeds) == ((0.0, 0.0), 2)
    assert other.values == pytest.approx((0.4, 0.3, 0.2))
    assert (one.margin, one.hours) == (pytest.approx(0.02), pytest.approx(0.02))


def test_a_line_of_smollm2_is_decided_by_its_new_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    number = "evaluate/rouge.rougeL"
    pilot = {"a": (0.3, 0.4, 0.35), "b": (0.28, 0.4, 0.3), "before": (0.1, 0.2, 0.16)}
    made = [Line(side, number, (0, 1, 2), values=values) for side, values in pilot.items()]
    made += [Line(f"{side} tuned", number, (10, 11), values=(0.5, 0.5 + 0.1 * (side == "a"))) for side in "ab"]
    line = {"more": "a", "than": "b", "start": "before", "number": number, "machine": "", "minutes": 30}
    line["decided"] = {"more": "a tuned", "than": "b tuned", "with_seeds": [10, 11]}
    monkeypatch.setattr(evidence_lines, "lines", lambda: made)
    monkeypatch.setattr(evidence_verdicts, "stated", lambda: {"smollm2": {"lines": [line]}})
    (old,), (new,) = evidence_verdicts.smollm2(pilot=True), evidence_verdicts.smollm2()
    assert (old.change.seeds, new.change.seeds) == (3, 2)
    assert new.change.mean == pytest.approx(0.05)
    assert old.margin == new.margin == pytest.approx(0.25 * (0.98 - 0.46) / 3), (
        "a quarter of what the pilot's baseline gains"
    )
    assert old.hours == 1.0


TEXT = """# A page

Before, 0.9 was said of something else.

## Measured

| a, whatever | {a} | {less} | {seed} |

It took 0.25 of an hour. Numbers: {sources}.

## Later

0.8
"""
NUMBERS = {"a": "0.500 [-0.638, 1.638]", "less": "-0.20 [-0.32, -0.08]", "seed": "0.600"}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[evidence_pages.Page]:
    contents: dict[str, Any] = {
        "page": "page.md",
        "from": "## Measured",
        "seeds": [0, 1, 2],
        "numbers": {"f1": ["evaluate/quality.f1", 3], "words": ["evaluate/length.words", 2]},
        "sides": {"a": "small/x policy", "b": "small/x::b policy"},
        "texts": ["| a, {{...}} | {{a f1}} | {{a - b words|+}} | {{a f1 @1|mean}} |", "Numbers: {{sources}}."],
        "not_measured": [0.25],
    }
    (tmp_path / "page.yaml").write_text(yaml.safe_dump(contents), encoding="utf-8")
    monkeypatch.setattr(evidence_pages, "ROOT", tmp_path)
    monkeypatch.setattr(evidence_lines, "SNAPSHOT", tmp_path)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "x.txt").write_text(SNAPSHOT, encoding="utf-8")
    evidence_lines.keys.cache_clear()
    yield evidence_pages.Page(tmp_path / "page.yaml")
    evidence_lines.keys.cache_clear()


SNAPSHOT = """seed: 0
evaluate: key aa11, needs policy start
evaluate: name="evaluate"
policy: key bb22, needs start
::b
- policy
+ evaluate: key cc33, needs nothing
- evaluate.sampling: temperature=1.0
"""
MADE = [
    Line("small/x policy", "evaluate/quality.f1", (0, 1, 2), values=(0.0, 0.6, 0.9), key="aa11", commit="c1"),
    Line("small/x policy", "evaluate/length.words", (0, 1, 2), values=(1.0, 2.0, 3.0), key="aa11", commit="c1"),
    Line("small/x::b policy", "evaluate/length.words", (0, 1, 2), values=(1.2, 2.15, 3.25), key="old", commit="c1", machine="GPU 1"),
]  # fmt: skip


def test_numbers_are_printed_where_the_texts_say(page: evidence_pages.Page) -> None:
    blank = TEXT.format(a="1", less="2 [3, 4]", seed="5", sources="nothing")
    said = "3 numbers, each a line of `benchmarks/evidence/results/`. 1 is older than its recipe (`small/x`: 1)"
    assert page.written(blank, MADE) == TEXT.format(**NUMBERS, sources=said)
    assert page.without_line(blank) == []
    assert page.without_line(blank.replace("took 0.25", "took 0.26")) == ["0.26"]
    with pytest.raises(LookupError, match="2 places"):
        page.written(blank + "Numbers: nothing.", MADE)
    with pytest.raises(
        LookupError, match=r"small/x policy, evaluate/quality.f1, seeds \(0, 1, 2\), any machine: 0 lines"
    ):
        page.written(blank, MADE[1:])


def test_sides_of_a_difference_are_of_one_machine(page: evidence_pages.Page) -> None:
    page.contents["sides"]["b"] += " on another"
    with pytest.raises(LookupError, match="of one machine"):
        page.asked("a - b words")


def test_a_difference_that_was_recorded_is_printed_as_it_was(page: evidence_pages.Page) -> None:
    recorded = Line(
        "small/x policy", "evaluate/length.words", (0, 1, 2), "small/x::b policy", mean=-0.3, interval=(-0.4, -0.2),
        commit="c0", recorded_from_page=True, machine="",
    )  # fmt: skip
    blank = TEXT.format(a="1", less="2 [3, 4]", seed="5", sources="nothing")
    written = page.written(blank, [*MADE, recorded])
    assert "| -0.30 [-0.40, -0.20] |" in written
    other = evidence_pages.Asked(
        "small/x::b policy", "evaluate/length.words", (0, 1, 2), "small/x policy", "", 1, 100.0, ("+",)
    )
    assert other.text([*MADE, recorded])[0] == "+30.0 [20.0, 40.0]", "the difference the other way"
    assert Line.from_json(recorded.as_json()) == recorded
    zero = Line("small/x policy", "evaluate/quality.f1", (0,), mean=0.0)
    assert Line.from_json(zero.as_json()) == zero
    assert "1 were recorded from the pages of `c0`: their runs are gone" in written


def test_a_line_is_older_when_the_key_of_its_stage_has_changed(page: evidence_pages.Page) -> None:
    assert [line.older_than_its_recipe for line in MADE] == [False, False, True]
    difference = replace(MADE[0], less="small/x::b policy", key="aa11 cc33")
    assert not difference.older_than_its_recipe
    assert replace(difference, key="aa11 old").older_than_its_recipe, "the other side has changed"
    assert evidence_lines.keys("small/x") == {
        ("", "evaluate"): "aa11", ("", "policy"): "bb22", ("b", "evaluate"): "cc33",
    }  # fmt: skip
    assert evidence_lines.keys("small/none") == {}


def test_a_line_is_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_lines, "RESULTS", tmp_path)
    evidence_lines.write(MADE)
    assert evidence_lines.lines() == MADE
    again = Line("small/x policy", "evaluate/quality.f1", (0, 1, 2), values=(0.1, 0.2, 0.3), key="aa11")
    evidence_lines.write([again])
    assert evidence_lines.lines() == [again, *MADE[1:]], "one measured later takes its place"


COMPARED = {
    "baseline": "one",
    "recipes": {
        "one": {"path": "recipes/small/length.yaml", "seeds": {"0": 0, "1": 1}},
        "two": {"path": "recipes/small/length.yaml::scalar", "seeds": {"0": 0, "1": 1}},
    },
    "stages": {
        "evaluate": {
            "numbers": [
                {
                    "number": "length.words", "model": "policy",
                    "before": {"low": 5.5, "high": 6.5, "seeds": {"0": 6.0, "1": 6.1}},
                    "recipes": {
                        "one": {"low": 1.0, "high": 2.0, "seeds": {"0": 1.5, "1": 1.25}},
                        "two": {"low": None, "high": None, "seeds": {"0": 1.0, "1": None}},
                    },
                    "differences": {
                        "two": {"over_prompts": {"low": -1.0, "high": 0.5}, "over_seeds": {}, "seeds": {"0": -0.5}},
                    },
                }
            ]
        }
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "words", [["a.yaml::row", "--seeds", "0,1", "vars.x=b.yaml"], ["a.yaml", "b.yaml"], ["runs/a"]]
)
def test_a_recipe_that_is_alone_is_compared_with_itself(words: list[str]) -> None:
    twice = evidence.twice(words)
    assert twice == (["a.yaml::row", *words] if "a.yaml::row" in words else words)


def test_lines_of_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = {(line.side, line.less): line for line in evidence.lines_of(COMPARED, [], "c1", "a processor")}
    keys = evidence_lines.keys("small/length")
    one, two = "small/length policy", "small/length::scalar policy"
    assert set(made) == {
        (one, ""),
        (two, ""),
        (two, one),
        ("small/length before", ""),
        ("small/length::scalar before", ""),
    }
    assert made[one, ""] == Line(
        one, "evaluate/length.words", (0, 1), values=(1.5, 1.25), prompts=(1.0, 2.0), key=keys["", "evaluate"],
        commit="c1", machine="a processor",
    )  # fmt: skip
    assert (made[two, ""].seeds, made[two, ""].prompts) == ((0,), None)
    assert (made[two, one].prompts, made[two, one].key) == (
        (-1.0, 0.5),
        f"{keys['scalar', 'evaluate']} {keys['', 'evaluate']}",
    )
    changed = {line.side for line in evidence.lines_of(COMPARED, ["vars.kl=0.1"], "c1", "")}
    assert "small/length::scalar vars.kl=0.1 policy" in changed
    itself = json.loads(json.dumps(COMPARED))
    itself["recipes"]["two"]["path"] = itself["recipes"]["one"]["path"]
    alone = {(line.side, line.less) for line in evidence.lines_of(itself, [], "c1", "")}
    assert alone == {(one, ""), ("small/length before", "")}
    folder = json.loads(json.dumps(COMPARED))
    folder["recipes"]["one"]["path"] = "runs/small-length"
    with pytest.raises(SystemExit, match="is no recipe below recipes/"):
        list(evidence.lines_of(folder, [], "c1", ""))
