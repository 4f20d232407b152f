"""Who starts the processes of a stage: fgrl itself, also inside a batch script of Slurm, `srun`, or torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import tiny_recipe
from listening import LOOPBACK
from patience import HUNG
from pipeline_helpers import HERE, environment, fgrl_here

from fgrl.base import ranks
from fgrl.experiments.pipeline import run as run_module
from fgrl.experiments.pipeline.run import Run

pytestmark = pytest.mark.usefixtures("warm")

BATCH = {
    "SLURM_JOB_ID": "4711", "SLURM_JOBID": "4711", "SLURM_JOB_NAME": "train", "SLURM_NODELIST": "node7", "SLURM_NNODES": "1",
    "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_SUBMIT_DIR": "/",
}  # fmt: skip
"""What `sbatch` sets in the script, which runs once."""
TWO = ("vars.devices=2", "vars.strategy=ddp", "stages.calibrate=null", "stages.policy=null", "stages.evaluate=null")


def batch(tasks: int) -> dict[str, str]:
    return BATCH | {"SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks)}


def srun(tasks: int, number: int) -> dict[str, str]:
    place = {"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)}
    return batch(tasks) | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(tasks)} | place


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Path:
    path = tiny_recipe.write(tmp_path, tiny_model_dir)
    path.write_text(path.read_text() + f"imports: ['{HERE / 'launch_spy.py'}']\n")
    return path


def start(recipe: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "fgrl",
        "run",
        str(recipe),
        "--runs",
        str(recipe.parent / "runs"),
        *TWO,
        *arguments,
    ]
    return subprocess.Popen(
        command, cwd=recipe.parent, env=environment() | {"SPY": str(recipe.parent)} | more, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def finish(*processes: subprocess.Popen[str]) -> None:
    """Wait for all of them; each ends with exit code 0."""
    try:
        said = [process.communicate(timeout=HUNG)[1] for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
        raise
    assert [process.returncode for process in processes] == [0] * len(processes), said


def check_two_trained(folder: Path) -> None:
    """Both processes trained, each on some rows, and nobody outside this machine could reach them."""
    seen = [json.loads(file.read_text()) for file in sorted(folder.glob("rank-*.json"))]
    assert [one["world"] for one in seen] == [2, 2]
    assert [one["listening"] for one in seen] == [[LOOPBACK], [LOOPBACK]]
    (stage,) = (folder / "runs" / "stages").glob("reward_model-*")
    assert (stage / "stage.json").is_file()
    assert not list(stage.glob("ranks-*")), "the file by which they found each other is gone"


@pytest.mark.parametrize(("tasks", "arguments"), [(1, ()), (2, ("--only", "reward_model"))])
def test_inside_a_batch_script_all_devices_train(tasks: int, arguments: tuple[str, ...], recipe: Path) -> None:
    finish(start(recipe, *arguments, **batch(tasks)))
    check_two_trained(recipe.parent)


def test_processes_that_srun_starts_train_together(recipe: Path) -> None:
    finish(*(start(recipe, "--only", "reward_model", **srun(2, number)) for number in (0, 1)))
    check_two_trained(recipe.parent)


@pytest.mark.parametrize(("tasks", "devices"), [(3, 2), (2, 1)])
def test_another_number_of_processes_than_the_stage_wants_is_refused(tasks: int, devices: int, recipe: Path) -> None:
    with mock.patch.dict(os.environ, srun(tasks, 0) | {"SPY": str(recipe.parent)}):
        ran = fgrl_here("run", recipe, *TWO, f"vars.devices={devices}", "--only", "reward_model", cwd=recipe.parent)
    assert ran.returncode == 2
    assert f"started {tasks} processes, and stage reward_model computes with {devices}" in ran.stderr


def test_other_nodes_than_the_stage_wants_are_refused(recipe: Path) -> None:
    with mock.patch.dict(os.environ, srun(2, 0) | {"SLURM_STEP_NUM_NODES": "2", "SPY": str(recipe.parent)}):
        ran = fgrl_here("run", recipe, *TWO, "--only", "reward_model", cwd=recipe.parent)
    assert ran.returncode == 2
    assert "started 2 processes on 2 nodes, and stage reward_model computes with 2 processes (" in ran.stderr


@pytest.mark.parametrize(
    ("variables", "rank", "local"),
    [
        ({}, 0, 0),
        (batch(1), 0, 0),
        (batch(2), 0, 0),
        (srun(2, 1), 1, 1),
        (srun(1, 0), 0, 0),
        (batch(2) | {"LOCAL_RANK": "1"}, 1, 1),
        (srun(2, 1) | {"RANK": "5", "LOCAL_RANK": "3"}, 5, 3),
    ],
)
def test_ranks_are_those_of_the_launcher(variables: dict[str, str], rank: int, local: int) -> None:
    assert (ranks.rank(variables), ranks.local_rank(variables)) == (rank, local)
    assert ranks.rank(ranks.without_launcher(variables)) == 0


def test_each_rank_has_a_gpu_of_its_own_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[Any] = []
    torch = run_module.torch
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr("fgrl.experiments.pipeline.run.seeds", SimpleNamespace(seed_libraries=lambda _seed: None))
    for name, value in srun(4, 3).items():
        monkeypatch.setenv(name, value)
    run = Run("policy", tmp_path, cache=tmp_path / "cache", rank=3)
    run.seed_libraries()
    assert chosen == [run.device] == [torch.device("cuda", 3)]
    on_cpu = Run("policy", tmp_path, cache=tmp_path / "cache", rank=3, accelerator="cpu")
    on_cpu.seed_libraries()
    assert len(chosen) == 1
