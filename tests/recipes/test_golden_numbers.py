"""Numbers of the five papers' small recipes with the tiny model: what is measured, logged and compared is what commit 6adc7d0e gave.

A change that means to change a number makes the files of `golden/` again: `GOLDEN=write pytest tests/recipes/test_golden_numbers.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import test_rla_recipes
import test_rtt_recipes
import test_small_recipes_run
import test_small_span_chains_run
import test_small_text2grad_run
from conftest import tiny_model
from scratch_registry import scratch
from typer.testing import CliRunner

from fgrl import registry
from fgrl.cli import app
from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.recipe import Recipe, load

FOLDER = Path(__file__).parent / "golden"
RECIPES: dict[str, tuple[ModuleType, tuple[str, ...], tuple[str, ...]]] = {
    "segment_ppo": (test_small_recipes_run, ("small/segment_ppo",), ()),
    "segment_ppo_bandit": (test_small_recipes_run, ("small/segment_ppo_bandit",), ()),
    "text2grad": (test_small_text2grad_run, ("qa", "paper"), ()),
    "rtt": (test_rtt_recipes, ("small/rtt",), ()),
    "span_chains": (test_small_span_chains_run, ("small/span_chains",), ()),
    "rla": (test_rla_recipes, ("rla",), ("stages.samples.engine=given",)),
}
"""The module that makes each small, what it calls it, and what it changes besides."""
NEAR = {"rel": 2e-3, "abs": 1e-5}
"""Machines with other vector instructions add in another order."""
CHANGING = ("seconds", "per_s", "time", "memory", "gib", "mfu", "utilization")
"""Parts of the names of what differs between runs."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden") / "runs"


@pytest.fixture(scope="module", autouse=True)
def given() -> Iterator[None]:
    with scratch():
        registry.register("given")(test_rla_recipes.Given)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, runs: Path) -> Callable[[str], tuple[Recipe, Path]]:
    """The recipe of a name, in the same precision on all machines, and the folder of its run."""
    model = tiny_model(tmp_path_factory.mktemp("steady") / "tiny-llama", 0)
    made: dict[str, tuple[Recipe, Path]] = {}

    def finish(name: str) -> tuple[Recipe, Path]:
        if name not in made:
            module, words, changes = RECIPES[name]
            with mock.patch.object(module, "load", lambda path, given: load(path, [*given, "dtype=float32"])):
                recipe = module.reduced(*words, model, *changes)
            summary = execute(recipe, runs)
            assert summary.exit == 0, summary.error
            made[name] = recipe, summary.report.parent
        return made[name]

    return finish


def flat(value: Any, place: str) -> dict[str, float]:
    """Return the numbers in nested mappings and lists, by the path to them."""
    if isinstance(value, dict):
        return {key: number for name, own in value.items() for key, number in flat(own, f"{place}/{name}").items()}
    if isinstance(value, list):
        return {key: one for number, own in enumerate(value) for key, one in flat(own, f"{place}/{number}").items()}
    return {place: float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else {}


def check(name: str, found: Mapping[str, float]) -> None:
    """All numbers of `golden/NAME.json` were found; there may be others."""
    file = FOLDER / f"{name}.json"
    if os.environ.get("GOLDEN") == "write":
        FOLDER.mkdir(exist_ok=True)
        file.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n", encoding="utf-8")
    golden = json.loads(file.read_text(encoding="utf-8"))
    assert golden
    assert golden.keys() - found.keys() == set()
    assert {key: found[key] for key in golden} == pytest.approx(golden, **NEAR, nan_ok=True)


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "segment_ppo_bandit"])
def test_what_is_measured_and_logged(name: str, finished: Callable[[str], tuple[Recipe, Path]], runs: Path) -> None:
    recipe, _ = finished(name)
    found: dict[str, float] = {}
    for stage in plan(recipe, runs).stages:
        if (measured := stage.dir / "out" / "metrics.json").exists():
            found |= flat(json.loads(measured.read_text(encoding="utf-8"))["metrics"], stage.name)
        if (log := stage.dir / "log.jsonl").exists():
            for place, line in enumerate(log.read_text(encoding="utf-8").split("\n")):
                found |= flat(json.loads(line or "{}"), f"{stage.name}[{place}]")
    check(name, {key: number for key, number in found.items() if not any(part in key for part in CHANGING)})


def printed(*words: object) -> Any:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_tables(finished: Callable[[str], tuple[Recipe, Path]]) -> None:
    table = printed("table", finished("segment_ppo")[1], finished("segment_ppo_bandit")[1])
    found: dict[str, float] = {}
    for recipe, rows in table["recipes"].items():
        for row in rows:
            found |= flat(row, f"{recipe}/{row['model']}/{row['number']}")
    check("table", found)


def test_comparisons(finished: Callable[[str], tuple[Recipe, Path]]) -> None:
    stages = printed("compare", finished("segment_ppo_bandit")[1], finished("segment_ppo")[1])["stages"]
    found: dict[str, float] = {}
    for stage, compared in stages.items():
        for row in compared["numbers"]:
            numbers = {key: row[key] for key in ("before", "recipes", "differences")}
            found |= flat(numbers, f"{stage}/{row['model']}/{row['number']}")
    check("compare", found)
