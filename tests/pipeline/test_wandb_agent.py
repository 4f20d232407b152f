"""`wandb agent`, W&B's own program, runs the points of a sweep against a stub of W&B's server on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import HUNG
from pipeline_helpers import environment, fgrl, names, recipe_file
from small_sweep import reduced
from stub_wandb import ENTITY, PROJECT, SWEEP, StubWandb

from fgrl.runs.run import Run

KEY = "0123456789" * 4

pytest.importorskip("wandb", reason="needs wandb: pip install 'fgrl[wandb]'")


def of_fakes(folder: Path) -> Path:
    stages = "{first: {name: counting, steps: 2}, last: {name: descending, steps: 2, of: '${out:first}'}}"
    recipe = recipe_file(folder, stages)
    recipe.write_text(f"{recipe.read_text()}track: [{{wandb: {{project: small, group: of-the-recipe}}}}]\n")
    file = folder / "s.yaml"
    file.write_text(
        'program: fgrl\ncommand: ["${program}", run, fake.yaml, "${args_no_hyphens}"]\nmethod: grid\n'
        "metric: {name: last/loss, goal: minimize}\nparameters: {stages.last.level: {values: [1.0, 3.0]}, seed: {value: 4}}\n"
    )
    return file


def served(folder: Path, stub: StubWandb) -> dict[str, str]:
    """The environment of somebody who works with the stub: a home and a key of their own, `fgrl` on the path."""
    program = folder / "bin" / "fgrl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fgrl "$@"\n')
    program.chmod(0o755)
    inherited = {name: value for name, value in environment().items() if not name.startswith("WANDB_")}
    own = {"HOME": str(folder / "home"), "PATH": f"{program.parent}{os.pathsep}{inherited['PATH']}"}
    return inherited | own | {"WANDB_BASE_URL": stub.url, "WANDB_API_KEY": KEY}


def run_agent(folder: Path, file: Path, points: Sequence[Mapping[str, Any]], **more: str) -> StubWandb:
    """The agent has run these points, and left when it was told to."""
    with StubWandb(file.read_text(), points) as stub:
        agent = subprocess.run(
            [sys.executable, "-m", "wandb", "agent", f"{ENTITY}/{PROJECT}/{SWEEP}"],
            cwd=folder,
            env=served(folder, stub) | more,
            capture_output=True,
            text=True,
            timeout=HUNG,
            check=False,
        )
    assert agent.returncode == 0, agent.stderr
    assert "Received exit command" in agent.stderr
    assert not stub.refused, "all that it and its runs ask for is answered"
    assert KEY not in agent.stdout + agent.stderr + stub.uploaded
    return stub


def arrived(stub: StubWandb, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config and the summary of a run at W&B, after what belongs to every point of an agent."""
    name = f"point-{number}"
    about = stub.runs[name]
    assert (about["sweep"], about["project"], about["entity"]) == (SWEEP, PROJECT, ENTITY)
    assert stub.exit_code(name) == 0
    said = json.dumps([about, stub.streamed[name]])
    assert not names(said, socket.gethostname())
    return {key: each["value"] for key, each in json.loads(about["config"]).items()}, stub.summary(name)


def finished(runs: Path) -> list[Any]:
    """The agent's runs in the folder of runs, as fgrl reads them, in their order."""
    folders = sorted(path for path in runs.iterdir() if path.name[:2] == "20")
    loaded = [Run(folder) for folder in folders]
    assert all(stage.finished for run in loaded for stage in run.stages.values())
    return loaded


def test_its_points_are_runs_of_fgrl_whose_parameters_and_numbers_arrive(tmp_path: Path) -> None:
    points = [{"stages.last.level": level, "seed": 4} for level in (1.0, 3.0)]
    stub = run_agent(tmp_path, of_fakes(tmp_path), points)
    assert set(stub.runs) == {"point-1", "point-2"}
    for number, run in enumerate(finished(tmp_path / "runs" / "fake"), start=1):
        level = points[number - 1]["stages.last.level"]
        assert {stage.name: stage.summary for stage in run.stages.values()} == {
            "first": {"counted": 2},
            "last": {"loss": level / 2},
        }
        config, summary = arrived(stub, number)
        assert (config["stages.last.level"], config["stages"]["last"]["level"], config["seed"]) == (level, level, 4)
        assert stub.runs[f"point-{number}"]["groupName"] == "of-the-recipe"
        assert summary["last/loss"] == level / 2
        logged = [row["last/loss"] for row in stub.history(f"point-{number}") if "last/loss" in row]
        assert logged == [level, level / 2]
    stages = Counter(folder.name.partition("-")[0] for folder in (tmp_path / "runs" / "stages").glob("*-*"))
    assert stages == {"first": 1, "last": 2}, "the second point finds what the first one has made"


def test_points_of_fgrl_sweep_arrive_as_a_group(tmp_path: Path) -> None:
    """The same server, without an agent: fgrl runs the points."""
    file = of_fakes(tmp_path)
    (tmp_path / "fake.yaml").write_text((tmp_path / "fake.yaml").read_text().replace(", group: of-the-recipe", ""))
    with StubWandb("", []) as stub:
        done = fgrl("sweep", file, "--wandb", PROJECT, cwd=tmp_path, **served(tmp_path, stub), WANDB_MODE="online")
    assert done.returncode == 0, done.stderr
    assert not stub.refused
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    assert {about["groupName"] for about in stub.runs.values()} == {folder.name}
    for number, level in ((1, 1.0), (2, 3.0)):
        name = f"{folder.name}-{number}"
        config = {key: each["value"] for key, each in json.loads(stub.runs[name]["config"]).items()}
        assert (config["stages.last.level"], config["sweep"]) == (level, {"id": folder.name, "point": number})
        assert (stub.summary(name)["last/loss"], stub.exit_code(name)) == (level / 2, 0)


@pytest.mark.evidence
def test_it_runs_the_points_of_a_shipped_file(tmp_path: Path) -> None:
    """`sweeps/small/kl_by_cutoff.yaml`, its trainings shortened."""
    file = reduced(tmp_path)
    values = yaml.safe_load(file.read_text())["parameters"]["stages.policy.algorithm.kl_coef"]["values"]
    points = [{"vars.cutoff": 1.0, "stages.policy.algorithm.kl_coef": value} for value in values]
    stub = run_agent(tmp_path, file, points, FGRL_WANDB=PROJECT)
    runs = finished(tmp_path / "runs" / "small-word_segments")
    assert len(runs) == len(points) == 2
    for number, run in enumerate(runs, start=1):
        config, summary = arrived(stub, number)
        assert (
            config["stages"]["policy"]["algorithm"]["kl_coef"] == points[number - 1]["stages.policy.algorithm.kl_coef"]
        )
        reported = run.stages["evaluate"].summary["measured"]
        assert summary["evaluate/quality.f1"] == reported["quality.f1"]
