"""Machine files: they set devices of trainings, and nothing that changes results or keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fgrl.base.errors import UsageError
from fgrl.cli import app
from fgrl.experiments.pipeline import plan
from fgrl.experiments.recipe import load, placed
from fgrl.experiments.recipe.machines import read
from fgrl.registry import Problems

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "small" / "segment_ppo.yaml"


def machines(folder: Path, text: str) -> Path:
    file = folder / "machines.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_devices_of_all_trainings_and_of_single_ones(tmp_path: Path) -> None:
    file = machines(tmp_path, "train: {devices: 2, accelerator: cpu}\nstages: {policy: {devices: 4}}\n")
    before = load(RECIPE, [])
    after = load(RECIPE, placed(file, before))
    trains = {name: stage.train for name, stage in after.stages.items() if hasattr(stage, "train")}
    assert {name: (train.devices, train.accelerator) for name, train in trains.items()} == {
        "reward_model": (2, "cpu"), "policy": (4, "cpu"),
    }  # fmt: skip


@pytest.mark.smollm2
def test_no_key_changes(tmp_path: Path) -> None:
    before = load(RECIPE, [])
    after = load(RECIPE, placed(machines(tmp_path, "train: {devices: 2, accelerator: cpu}\n"), before))
    keys = [[stage.key for stage in plan(recipe, tmp_path / "runs").stages] for recipe in (before, after)]
    assert keys[0] == keys[1]


def test_the_command_takes_the_file_and_an_override_wins(tmp_path: Path) -> None:
    file = machines(tmp_path, "train: {devices: 40}\n")  # more devices than rows of a step
    run = CliRunner().invoke(app, ["validate", str(RECIPE), "--machines", str(file)])
    assert run.exit_code == 2, run.output
    assert "devices 40" in run.output
    changes = ["stages.policy.train.devices=1", "stages.reward_model.train.devices=1"]
    assert CliRunner().invoke(app, ["validate", str(RECIPE), "--machines", str(file), *changes]).exit_code == 0


def test_mistakes_are_named(tmp_path: Path) -> None:
    recipe = load(RECIPE, [])
    with pytest.raises(Problems, match=r"train\.devcies.*(\n.*)*did you mean \"devices\""):
        placed(machines(tmp_path, "train: {devcies: 2}\n"), recipe)
    with pytest.raises(UsageError, match=r'stages\.polcy: .*did you mean "policy"'):
        placed(machines(tmp_path, "stages: {polcy: {devices: 1}}\n"), recipe)


def test_several_nodes_train_and_reach_no_servers(tmp_path: Path) -> None:
    two = placed(
        machines(tmp_path, "train: {nodes: 2}\nstages: {reward_model: {nodes: 1, devices: 2}}\n"), load(RECIPE, [])
    )
    stages = load(RECIPE, two).stages
    assert {name: (stage.nodes(), stage.processes()) for name, stage in stages.items() if stage.processes() > 1} == {
        "reward_model": (1, 2), "policy": (2, 2),
    }  # fmt: skip
    with pytest.raises(Problems, match=r"train\.nodes 2 with rollout\.engine vllm: its servers"):
        load(RECIPE, [*two, "stages.policy.rollout.engine=vllm"])


def test_a_job_of_slurm_is_checked(tmp_path: Path) -> None:
    file = machines(tmp_path, "slurm: {partition: long, time: 2-12:00:00, options: [--exclusive]}\n")
    assert read(file).slurm.time == "2-12:00:00"
    with pytest.raises(Problems, match=r"slurm\.time"):
        read(machines(tmp_path, "slurm: {time: two days}\n"))
    with pytest.raises(Problems, match=r"slurm\.partiton.*(\n.*)*did you mean \"partition\""):
        read(machines(tmp_path, "slurm: {partiton: long}\n"))


def test_devices_of_a_machine_are_for_stages_in_which_a_model_works(tmp_path: Path) -> None:
    client = "{name: local, model: smollm2-135m-instruct}"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "about: Answers.\nvars: {client: {name: openai, model: m}}\n"
        "stages: {answers: {name: annotate, data: {name: lines, path: topics.txt}, annotator: {name: answer, client: '${vars.client}', "
        "prompt: prompt.txt}}}\n"
    )
    (tmp_path / "topics.txt").write_text("rivers\n")
    (tmp_path / "prompt.txt").write_text("{prompt}\n")
    usual = machines(tmp_path, "train: {devices: 2}\n")
    assert placed(usual, load(recipe, [])) == []
    assert placed(usual, load(recipe, [f"vars.client={client}"])) == ["stages.answers.devices=2"]
    named = machines(tmp_path, "stages: {answers: {devices: 2}}\n")
    assert placed(named, load(recipe, [])) == ["stages.answers.devices=2"]
