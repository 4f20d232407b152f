"""Stages without training share their work out over the processes of a launcher: the bytes are those of one process, also after a kill."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import yaml
from shared_work import product, ranks_run

from fgrl.experiments.recipe import load
from fgrl.rollouts import collecting

STAGES = ("samples", "calibrate", "evaluate")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """Drawing, calibration with entropies, and evaluation at two temperatures; several groups of rows in each."""
    path = tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)
    data = yaml.safe_load(path.read_text())
    calibrate, evaluate = data["stages"]["calibrate"], data["stages"]["evaluate"]
    calibrate["reward"] = {
        "name": "segment_rm",
        "model": "${vars.base}",
        "segmenter": {"name": "entropy", "cutoff": 2.0},
    }
    calibrate["batch_size"] = 5
    evaluate["models"] = {"sft": {"base": "${vars.base}"}, "other": {"base": "${vars.base}"}}
    evaluate["prompts"] = {"name": "lines", "path": "topics.txt", "limit": 7}
    evaluate["sampling"] = {"max_new_tokens": 8, "batch_size": 2}
    samples = {
        "name": "sample", "prompts": {"name": "lines", "path": "topics.txt", "limit": 7}, "model": {"base": "${vars.base}"},
        "sampling": {"max_new_tokens": 8, "batch_size": 4}, "per_prompt": 2,
    }  # fmt: skip
    data["stages"] = {"samples": samples, "calibrate": calibrate, "evaluate": evaluate}
    data["vars"] = {"base": data["vars"]["base"], "devices": 1}
    for stage in data["stages"].values():
        stage["devices"] = "${vars.devices}"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """What one process makes."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    for stage in STAGES:
        assert ranks_run(recipe, folder, stage, 1) == [0], (folder / "said-0").read_text()
    return {stage: product(folder, stage) for stage in STAGES}


@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_make_the_bytes_of_one(
    stage: str, recipe: Path, tmp_path: Path, alone: dict[str, dict[str, bytes]]
) -> None:
    assert ranks_run(recipe, tmp_path / "run", stage, 2) == [0, 0], (tmp_path / "run" / "said-0").read_text()
    assert product(tmp_path / "run", stage) == alone[stage]
    assert (tmp_path / "run" / "said-1").read_text() == ""


@pytest.mark.parametrize("stage", ["samples", "evaluate"])
def test_what_a_lost_process_has_made_is_kept(
    stage: str, recipe: Path, tmp_path: Path, alone: dict[str, dict[str, bytes]]
) -> None:
    """The second one ends after its first group; one process goes on, draws what is left, and makes the same."""
    drawn = tmp_path / "drawn"
    draw = collecting.draw

    def counted(last: int | None) -> None:
        def noting(*arguments: Any, **more: Any) -> Any:
            before = drawn.read_text() if drawn.exists() else ""
            if last is not None and before.count("x") == last:
                os._exit(1)
            with drawn.open("a") as file:
                file.write("x")
            return draw(*arguments, **more)

        collecting.draw = noting

    ended = ranks_run(recipe, tmp_path / "run", stage, 2, lambda rank: counted(1) if rank else None)
    assert ended == [8, 1], (tmp_path / "run" / "said-0").read_text()
    assert "lost: a connection between the ranks has ended" in (tmp_path / "run" / "said-0").read_text()
    drawn.unlink()
    assert ranks_run(recipe, tmp_path / "run", stage, 1, lambda _rank: counted(None)) == [0]
    assert product(tmp_path / "run", stage) == alone[stage]
    left = {"samples": 1, "evaluate": 5}[stage]  # of 4, and of twice 4, groups
    assert drawn.read_text().count("x") == left


def test_devices_of_which_one_process_uses_one_are_named(recipe: Path) -> None:
    stages = load(recipe, ["vars.devices=2", "stages.samples.engine={name: vllm, dtype: float32}"]).stages
    assert stages["samples"].warnings() == [
        "devices is 2, and one process is enough: servers or an endpoint do the work, or no model does"
    ]
    assert stages["evaluate"].warnings() == []
