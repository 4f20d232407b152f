"""SIGKILL at random moments: the next run goes on, and ends with the bytes of an undisturbed one."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_recipe
from pipeline_helpers import fgrl, start
from tiny_recipe import log, products

pytestmark = pytest.mark.usefixtures("warm")

MODELS = ("reward_model", "policy")
SLOWLY = ("stages.policy.train.iterations=12", "stages.reward_model.train.epochs=6")


def undisturbed(recipe: Path, runs: Path, *overrides: str) -> float:
    """Run it through. Returns the seconds it took."""
    began = time.monotonic()
    done = fgrl("run", recipe, "--runs", runs, *overrides, cwd=recipe.parent)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def kill_after(recipe: Path, runs: Path, seconds: float, *overrides: str) -> bool:
    """Start a run and SIGKILL it after some seconds. False when it was done by then."""
    process = start("run", recipe, "--runs", runs, *overrides, cwd=recipe.parent)
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    assert process.returncode == 0, said
    return False


def kill_when(recipe: Path, runs: Path, moment: Callable[[], bool], later: float, *overrides: str) -> bool:
    """Start a run and SIGKILL it `later` seconds after `moment()` has come true. False when it was done by then."""
    process = start("run", recipe, "--runs", runs, *overrides, cwd=recipe.parent)
    while process.poll() is None and not moment():
        time.sleep(0.002)
    time.sleep(later)
    alive = process.poll() is None
    process.kill()
    _, said = process.communicate()
    assert alive or process.returncode == 0, said
    return alive


def unfinished(runs: Path) -> str:
    """What a killed run left: the stage it was in, and how far that was."""
    stages = sorted(path for path in (runs / "stages").glob("*-*") if not (path / "stage.json").exists())
    return ", ".join(f"{path.name} with {sorted(file.name for file in path.iterdir())}" for path in stages)


def assert_same(one: Path, two: Path, stages: tuple[str, ...] = MODELS) -> None:
    assert products(one, stages) == products(two, stages)
    for stage in stages:
        a, b = (next((runs / "stages").glob(f"{stage}-*")) for runs in (one, two))
        assert log(a) == log(b)
        assert not list(a.glob("writing.ckpt"))
    stats, answers = "calibrate-*/out/stats.json", "evaluate-*/out/answers.jsonl"
    for pattern in (stats, answers):
        a, b = (next((runs / "stages").glob(pattern)).read_bytes() for runs in (one, two))
        assert a == b


def killed_often(folder: Path, base: Path, moments: int, *overrides: str) -> int:
    """Kill a run `moments` times, spread over the time that an undisturbed one takes, then let it finish."""
    recipe = tiny_recipe.write(folder / "recipe", base)
    took = undisturbed(recipe, folder / "undisturbed", *overrides)
    draw = random.Random(moments)
    kills, left = 0, set()
    for moment in range(moments):
        # loading the libraries is lost work each time: a moment counts from the start of its process
        seconds = took * draw.uniform(moment / moments, (moment + 1) / moments)
        kills += kill_after(recipe, folder / "killed", seconds, *overrides)
        if (folder / "killed" / "stages").exists():
            left.add(unfinished(folder / "killed"))
    undisturbed(recipe, folder / "killed", *overrides)
    assert_same(folder / "undisturbed", folder / "killed")
    print(f"{kills} kills; they left: " + "; ".join(sorted(filter(None, left))))
    assert any(left), "no kill fell into a stage"
    return kills


def test_killed_three_times(tmp_path: Path, tiny_model_dir: Path) -> None:
    """While the reward model is trained, while it calibrates, while the policy is trained; then left in peace."""
    recipe = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    runs, draw = tmp_path / "killed", random.Random()
    moments: list[Callable[[], bool]] = [
        lambda: steps(runs, "reward_model") >= 3,
        lambda: any((runs / "stages").glob("calibrate-*")),
        lambda: steps(runs, "policy") >= draw.choice([2, 3]),
    ]
    for moment in moments:
        assert kill_when(recipe, runs, moment, draw.uniform(0, 0.1))
    assert unfinished(runs).startswith("policy")
    assert any((runs / "stages").glob("policy-*/last.ckpt")), "nothing to go on from"
    undisturbed(recipe, runs)
    undisturbed(recipe, tmp_path / "undisturbed")
    assert_same(tmp_path / "undisturbed", runs)


@pytest.mark.evidence
def test_killed_ten_times(tmp_path: Path, tiny_model_dir: Path) -> None:
    assert killed_often(tmp_path, tiny_model_dir, 10, *SLOWLY) >= 2


@pytest.mark.evidence
@pytest.mark.parametrize("stage", MODELS)
def test_killed_while_it_trains(tmp_path: Path, tiny_model_dir: Path, stage: str) -> None:
    """Ten kills, each a few steps after the one before: every process goes on from a checkpoint of another."""
    recipe = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    undisturbed(recipe, tmp_path / "undisturbed", *SLOWLY)
    runs, draw, kills = tmp_path / "killed", random.Random(7), 0
    while kills < 10:
        enough = steps(runs, stage) + draw.randrange(1, 4)
        if not kill_when(recipe, runs, lambda: steps(runs, stage) >= enough, draw.uniform(0, 0.1), *SLOWLY):  # noqa: B023
            break
        kills += 1
    undisturbed(recipe, runs, *SLOWLY)
    assert kills >= 4
    assert_same(tmp_path / "undisturbed", runs)


def steps(runs: Path, stage: str) -> int:
    """Lines in a stage's log."""
    file = next((runs / "stages").glob(f"{stage}-*/log.jsonl"), None)
    return 0 if file is None else len(file.read_text().splitlines())


def test_a_finished_recipe_does_nothing(tmp_path: Path, tiny_model_dir: Path) -> None:
    recipe = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    overrides = ("stages.calibrate=null", "stages.policy=null", "stages.evaluate=null")
    undisturbed(recipe, tmp_path / "runs", *overrides)
    stage = next((tmp_path / "runs" / "stages").glob("reward_model-*"))
    before = {path: path.stat().st_mtime_ns for path in stage.rglob("*")}
    again = fgrl("run", recipe, "--runs", tmp_path / "runs", *overrides, "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["nothing_to_do"]
    assert {path: path.stat().st_mtime_ns for path in stage.rglob("*")} == before
