"""Files that somebody changes while a run works: products belong to the bytes that were read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_recipe
from pipeline_helpers import fgrl, fgrl_here

from fgrl.base.files import KEPT, kept
from fgrl.experiments import recipe
from fgrl.experiments.pipeline import plan

EDITS = """
from pathlib import Path

def score(completions, **kwargs):
    with open(__file__, "a") as own, (Path(__file__).parent / "topics.txt").open("a") as topics:
        own.write("\\nMORE = 1\\n")
        topics.write("\\na topic that came later")
    return [float(len(text)) for text in completions]
"""
CHANGES = [
    "stages.reward_model=null", "stages.calibrate=null", "stages.policy.reward={name: function, path: rewards.py:score}",
    "stages.policy.algorithm={name: grpo, kl_coef: 0.0}", "stages.policy.rollout.per_prompt=3",
    "stages.policy.train.iterations=2",
]  # fmt: skip


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.evidence)])
def test_a_training_is_kept_and_the_run_goes_on_when_its_files_change(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    """The reward adds a line to the rows, and code to its own file, each time it is called."""
    monkeypatch.chdir(tmp_path)
    file = tiny_recipe.write(tmp_path, tiny_model_dir)
    (tmp_path / "rewards.py").write_text(EDITS, encoding="utf-8")
    before = {name: (tmp_path / name).read_bytes() for name in ("rewards.py", "topics.txt")}
    several = [f"vars.devices={devices}", "vars.strategy=ddp"] if devices > 1 else []
    run = fgrl if devices > 1 else fgrl_here
    ended = run("run", file, "--runs", tmp_path / "runs", *CHANGES, *several, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert b"later" in (tmp_path / "topics.txt").read_bytes()
    (evaluated,) = (tmp_path / "runs" / "stages").glob("evaluate-*/stage.json")
    assert json.loads(evaluated.read_text())["summary"]["prompts"] == 4
    loaded = recipe.load(file, [*CHANGES, *several])
    assert not any(stage.cached for stage in plan(loaded, tmp_path / "runs").stages), "other rows are other results"
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    loaded = recipe.load(file, [*CHANGES, *several])
    assert all(stage.cached for stage in plan(loaded, tmp_path / "runs").stages)


def test_a_file_too_large_for_a_copy_must_stay_as_it_is(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fgrl.experiments.pipeline.kept_inputs.MOST_BYTES", 10)
    file = tiny_recipe.write(tmp_path, tiny_model_dir)
    (tmp_path / "rewards.py").write_text(EDITS, encoding="utf-8")
    ended = fgrl_here("run", file, "--runs", tmp_path / "runs", *CHANGES, cwd=tmp_path)
    assert ended.returncode == 3, ended.stderr
    assert "topics.txt" not in {path.name.partition("-")[2] for path in (tmp_path / "runs").rglob("inputs/*")}
    assert "stages.policy.prompts.path" in ended.stderr
    assert "1 GiB" in ended.stderr
    assert not list((tmp_path / "runs").rglob("policy-*/stage.json"))


def test_the_copies_are_used_while_stages_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEPT, raising=False)
    assert kept(tmp_path / "rows.jsonl") == tmp_path / "rows.jsonl"
    monkeypatch.setenv(KEPT, json.dumps({str(tmp_path / "rows.jsonl"): "/elsewhere/copy"}))
    assert kept(str(tmp_path / "rows.jsonl")) == Path("/elsewhere/copy")
