"""`fgrl run` with an engine that draws other responses each time: SIGKILL of the trainer, SIGTERM while an engine hangs."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import yaml
from patience import HUNG
from pipeline_helpers import HERE, start
from tiny_recipe import log, weights

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Path:
    path = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    data = yaml.safe_load(path.read_text())
    policy = data["stages"]["policy"]
    policy["reward"] = {"name": "segment_rm", "model": "${vars.base}", "segmenter": {"name": "ngram", "n": 3}}
    policy["train"]["iterations"] = 4
    policy["rollout"]["engine"] = {"name": "apart", "ahead": 1, "reproducible": False}
    files = [str(HERE / name) for name in ("apart_registered.py", "kill_self.py")]
    path.write_text(yaml.safe_dump(data | {"stages": {"policy": policy}, "imports": files}, sort_keys=False))
    return path


def run(recipe: Path, folder: Path, at: str, *overrides: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KILL_AT", at)
        patch.setenv("SCORED", str(folder / "scored.jsonl"))
        return start("run", recipe, "--runs", folder / "runs", *overrides, cwd=folder)


def stage(folder: Path) -> Path:
    return next((folder / "runs" / "stages").glob("policy-*"))


def test_a_trainer_that_is_killed_before_and_after_scoring_trains_on_what_was_drawn(
    recipe: Path, tmp_path: Path
) -> None:
    for at in ("before:1", "after:0"):  # iteration 1 both times
        killed = run(recipe, tmp_path, at)
        said = killed.communicate(timeout=HUNG)[1]
        assert killed.returncode == -signal.SIGKILL, said
        assert (stage(tmp_path) / "drawn" / "0-1.jsonl").exists()
        assert not (stage(tmp_path) / "stage.json").exists()
    last = run(recipe, tmp_path, "never:0")
    said = last.communicate(timeout=HUNG)[1]
    assert last.returncode == 0, said
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert len(scored) == 1 + 3 + 2
    assert scored[1] == scored[2] == scored[3], "iteration 1, three times"
    assert len({json.dumps(each["ids"]) for each in scored}) == 4
    assert [row["staleness"] for row in log(stage(tmp_path))] == [0, 1, 1, 1]
    assert not (stage(tmp_path) / "drawn").exists()


def test_a_stop_ends_a_run_whose_engine_hangs(recipe: Path, tmp_path: Path) -> None:
    hanging = run(recipe, tmp_path, "never:0", "stages.policy.rollout.engine.hangs=2")
    until = time.monotonic() + HUNG
    while not list(tmp_path.glob("runs/stages/policy-*/drawn/0-1.jsonl")):
        assert hanging.poll() is None, hanging.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)
    hanging.send_signal(signal.SIGTERM)
    said = hanging.communicate(timeout=HUNG)[1]
    assert hanging.returncode == 130, said
    assert "Traceback" not in said


@pytest.mark.evidence
def test_two_processes_that_draw_ahead_continue_to_the_same_bytes(recipe: Path, tmp_path: Path) -> None:
    two = ("vars.devices=2", "vars.strategy=ddp", "stages.policy.rollout.engine.reproducible=true")
    folders = tmp_path / "killed", tmp_path / "undisturbed"
    for folder in folders:
        folder.mkdir()
    killed = run(recipe, folders[0], "before:2", *two)
    killed.communicate(timeout=HUNG)
    assert killed.returncode != 0
    assert {path.name for path in (stage(folders[0]) / "drawn").iterdir()} >= {"0-2.jsonl", "1-2.jsonl"}
    for folder in folders:
        last = run(recipe, folder, "never:0", *two)
        said = last.communicate(timeout=HUNG)[1]
        assert last.returncode == 0, said
    assert weights(stage(folders[0]) / "out") == weights(stage(folders[1]) / "out")
    assert log(stage(folders[0])) == log(stage(folders[1]))
    assert [row["staleness"] for row in log(stage(folders[0]))] == [0, 1, 1, 1]
