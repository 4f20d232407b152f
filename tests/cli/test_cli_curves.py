"""`fgrl curves` on folders of runs with several seeds, and on recipes that have not run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import write_json, write_lines, write_stage
from scipy import stats
from typer.testing import CliRunner

from fgrl.cli import app, main
from fgrl.runs.results.curves import curve, first_reaching
from fgrl.runs.series import Series

REWARDS = {0: [0.0, 0.3, 0.6], 1: [0.1, 0.5, 0.6], 2: [0.2, 0.4, 0.9, 1.0]}


def training(runs: Path, recipe: str, seed: int, rewards: list[float], **more: list[float]) -> Path:
    """A finished run of one training."""
    folder = runs / recipe / f"20260501T09300{seed}Z-{seed:08x}"
    stage = runs / "stages" / f"policy-{recipe}{seed}"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(f"about: Trains.\nseed: {seed}\nstages:\n  policy: {{name: rl}}\n")
    write_lines(
        stage / "log.jsonl",
        [
            {"step": n, "reward": value} | {name: own[n] for name, own in more.items()}
            for n, value in enumerate(rewards)
        ],
    )
    write_stage(stage)
    write_json(
        folder / "summary.json",
        {"recipe": recipe, "key": f"{seed:08x}", "exit": 0,
         "stages": {"policy": {"key": f"{recipe}{seed}", "kind": "rl", "dir": f"../../stages/{stage.name}"}}},
    )  # fmt: skip
    return folder


def read(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["curves", *words, "--json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed, rewards in REWARDS.items():
        training(tmp_path / "runs", "spans", seed, rewards)
    training(tmp_path / "runs", "scalar", 0, [0.0, 0.1, 0.2])
    return tmp_path / "runs"


def test_means_over_seeds(runs: Path, tmp_path: Path) -> None:
    found = read(
        str(runs / "spans"),
        str(runs / "scalar"),
        "--metric",
        "reward",
        "--reaches",
        "0.35",
        "--out",
        str(tmp_path / "x" / "r"),
    )
    spans, scalar = found["curves"]
    assert spans["seeds"] == [0, 1, 2]
    assert [point["step"] for point in spans["points"]] == [0, 1, 2], "only steps that every seed has"
    at_one = np.array([0.3, 0.5, 0.4])
    half = stats.t.ppf(0.975, 2) * at_one.std(ddof=1) / math.sqrt(3)
    assert spans["points"][1]["mean"] == pytest.approx(0.4)
    assert spans["points"][1]["low"] == pytest.approx(0.4 - half)
    assert spans["points"][1]["high"] == pytest.approx(0.4 + half)
    assert scalar["points"][2] == {"step": 2.0, "mean": 0.2, "low": None, "high": None}
    assert found["reaches"] == {"spans": 1.0, "scalar": None}
    assert [Path(file).stat().st_size > 0 for file in found["files"]] == [True, True]


def test_the_table(runs: Path) -> None:
    result = CliRunner().invoke(app, ["curves", str(runs / "spans"), "--metric", "reward", "--reaches", "7"])
    lines = result.output.splitlines()
    assert "spans (3 seeds)" in lines[0]
    assert lines[1].split()[:2] == ["0", "0.10"]
    assert lines[-1] == "spans: never reaches 7"


def test_intervals_of_a_single_seed_are_those_of_its_log(tmp_path: Path) -> None:
    ends = {"held_out/x.y": [0.5, 0.6], "held_out/x.y/low": [0.4, 0.5], "held_out/x.y/high": [0.6, 0.8]}
    training(tmp_path / "runs", "spans", 0, [0.0, 1.0], **ends)
    found = read(str(tmp_path / "runs" / "spans"), "--metric", "held_out/x.y", "--stage", "policy")
    assert found["curves"][0]["points"][1] == {"step": 1.0, "mean": 0.6, "low": 0.5, "high": 0.8}


def add_stage(folder: Path, name: str, values: list[float], metric: str = "reward") -> None:
    """Another finished training of a run."""
    place = folder.parents[1] / "stages" / f"{name}-{folder.parent.name}{folder.name[-1]}"
    write_lines(place / "log.jsonl", [{"step": n, metric: value} for n, value in enumerate(values)])
    write_stage(place)
    summary = json.loads((folder / "summary.json").read_text())
    summary["stages"][name] = {
        "key": place.name.rpartition("-")[2],
        "kind": "finetune",
        "dir": f"../../stages/{place.name}",
    }
    write_json(folder / "summary.json", summary)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (["policy", "dpo"], {"spans policy": 0.6, "spans dpo": -2.0}),
        (["*"], {"spans policy": 0.6, "spans dpo": -2.0, "spans apo_down": 3.0}),
        (["apo_*", "dpo"], {"spans dpo": -2.0, "spans apo_down": 3.0}),
        (["dpo"], {"spans": -2.0}),
    ],
)
def test_a_curve_for_each_of_several_stages(tmp_path: Path, stages: list[str], expected: dict[str, float]) -> None:
    folder = training(tmp_path / "runs", "spans", 0, [0.0, 0.3, 0.6])
    add_stage(folder, "dpo", [0.0, -1.0, -2.0])
    add_stage(folder, "apo_down", [0.0, 1.5, 3.0])
    add_stage(folder, "sft", [0.0, 1.5, 3.0], metric="loss")
    words = [part for stage in stages for part in ("--stage", stage)]
    found = read(str(folder), "--metric", "reward", *words, "--out", str(tmp_path / "figure"))
    assert {own["name"]: own["points"][-1]["mean"] for own in found["curves"]} == expected
    assert (tmp_path / "figure.svg").exists()


def test_stages_of_several_seeds(tmp_path: Path) -> None:
    for seed, last in ((0, -2.0), (1, -4.0)):
        add_stage(training(tmp_path / "runs", "spans", seed, [0.0, 0.0, 0.0]), "dpo", [0.0, -1.0, last])
    found = read(str(tmp_path / "runs" / "spans"), "--metric", "reward", "--stage", "*")
    assert {own["name"]: (own["seeds"], own["points"][-1]["mean"]) for own in found["curves"]} == {
        "spans policy": ([0, 1], 0.0), "spans dpo": ([0, 1], -3.0)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the logs of policy and dpo have \"reward\": name one of them with --stage, or several (--stage '*')"),
        (["--stage", "sft", "--stage", "dpo"], 'the log of "sft" does not have the metric "reward"; there are: loss'),
        (["--stage", "x*"], 'no log has the metric "reward"; there are: none'),
    ],
)
def test_mistakes_with_stages_are_explained(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = training(tmp_path / "runs", "spans", 0, [0.0, 0.3])
    add_stage(folder, "dpo", [0.0, -1.0])
    add_stage(folder, "sft", [0.0, 1.0], metric="loss")
    with pytest.raises(SystemExit) as left:
        main(["curves", str(folder), "--metric", "reward", *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "rewrd"], 'no log has the metric "rewrd"; did you mean "reward"?'),
        (["--metric", "reward", "--stage", "critic"], "no training has finished"),
    ],
)
def test_mistakes_are_explained(runs: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["curves", str(runs / "spans"), *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_a_recipe_that_has_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = Path(__file__).resolve().parents[2] / "recipes" / "quickstart.yaml"
    with pytest.raises(SystemExit):
        main(["curves", str(recipe), "--seeds", "0,1", "--metric", "reward", "--runs", str(tmp_path / "runs")])
    assert "seed 0" in capsys.readouterr().err


def test_the_first_step_that_reaches_a_level() -> None:
    made = curve("x", {0: Series("reward", [0.0, 1.0, 2.0], [0.1, 0.5, 0.4])})
    assert [first_reaching(made.points, level) for level in (0.1, 0.5, 0.51)] == [0.0, 1.0, None]
    assert curve("none", {0: Series("reward", [], [])}).points == {}
