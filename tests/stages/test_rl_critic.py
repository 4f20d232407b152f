"""A policy trained on the spans of a critic: answers from a file, a model in this process, two processes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pipeline_helpers import fgrl

from fgrl.experiments import recipe
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.pipeline.log import read_log

pytestmark = pytest.mark.usefixtures("warm")

ANSWER = {"good": ["a", "e", "o"], "poor": ["i"]}
FORM = "{text: null, labels: {good: 1.0, poor: -1.0}}"
POLICY = """
about: "Two iterations on the spans of a critic."
seed: 1
vars: {{client: {{name: replay, answers: answers.jsonl}}, devices: 1, strategy: auto}}
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: prompts.txt}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: {{name: critic, client: "${{vars.client}}", prompt: critic.txt, format: {form},
             occurrence: all, token_policy: overlap}}
    algorithm: {{name: ppo, kl_coef: 0.05}}
    rollout: {{batch_size: 8, per_prompt: 2, sampling: {{max_new_tokens: 12, max_prompt_tokens: 48}}}}
    train: {{lr: 1e-2, iterations: 2, batch_size: 4, micro_batch_size: 3, accelerator: cpu,
            devices: "${{vars.devices}}", strategy: "${{vars.strategy}}"}}
"""
LOCAL = "vars.client={name: local, model: {base: %s}, max_tokens: 12}"


def write(folder: Path, base: Path) -> Path:
    (folder / "prompts.txt").write_text("".join(f"Say something of {i}\n" for i in range(4)))
    (folder / "critic.txt").write_text("{prompt}: {response}")
    lines = [{"contains": "Say something of 3", "answer": "No."}, {"any": True, "answer": ANSWER}]
    (folder / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = folder / "critic.yaml"
    path.write_text(POLICY.format(base=json.dumps(str(base)), form=FORM), encoding="utf-8")
    return path


def policy_log(path: Path, runs: Path, *overrides: str) -> list[dict[str, Any]]:
    loaded = recipe.load(path, list(overrides))
    summary = execute(loaded, runs)
    assert summary.exit == 0, summary.error
    return read_log(next(stage for stage in plan(loaded, runs).stages if stage.name == "policy").dir / "log.jsonl")


def test_a_policy_is_trained_on_the_spans_of_a_critic(tiny_model_dir: Path, tmp_path: Path) -> None:
    """The prompt whose critique cannot be read is missing in each iteration, never 0."""
    rows = policy_log(write(tmp_path, tiny_model_dir), tmp_path / "runs")
    assert [row["step"] for row in rows] == [0, 1]
    for row in rows:
        assert row["missing"] == row["reward/unparsed"] == 0.25
        assert row["reward/failed"] == row["reward/repaired"] == 0
        assert 0 < row["reward/positive"] < 1
        assert 0 <= row["reward/unmatched"] < 1
        assert 0 < row["seconds/critic"] <= row["seconds/score"]
        assert math.isfinite(row["grad_norm"])
        assert row["grad_norm"] > 0
    assert rows[0]["reward"] != rows[1]["reward"]


def test_a_plan_counts_the_questions(tiny_model_dir: Path, tmp_path: Path) -> None:
    planned = plan(recipe.load(write(tmp_path, tiny_model_dir)), tmp_path / "runs")
    (estimate,) = estimates(planned).values()
    assert estimate["calls"]["calls"] == 16, "two iterations of eight responses"


def test_another_text_of_the_prompt_is_another_stage(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Of the reward, and of the reader that a critic is trained with."""
    path = write(tmp_path, tiny_model_dir)
    (tmp_path / "annotated.jsonl").write_text('{"id": "1", "prompt": "Say it."}\n')
    path.write_text(
        path.read_text()
        + f"""
  critic:
    name: finetune
    data: {{name: critiques, data: {{name: jsonl, path: annotated.jsonl, format: records}}, prompt: critic.txt}}
    model: {{base: {tiny_model_dir}}}
    algorithm: sft
    train: {{lr: 1e-3, batch_size: 4}}
"""
    )

    def keys() -> dict[str, str]:
        return {stage.name: stage.key for stage in plan(recipe.load(path), tmp_path / "runs").stages}

    before = keys()
    assert keys() == before
    (tmp_path / "critic.txt").write_text("{prompt}! {response}")
    after = keys()
    assert all(after[name] != before[name] for name in ("policy", "critic"))


def test_a_model_in_this_process_that_writes_no_critique_stops_the_run(tiny_model_dir: Path, tmp_path: Path) -> None:
    """One field makes the critic a local model. This one writes noise: nothing is trained on rewards of 0."""
    loaded = recipe.load(write(tmp_path, tiny_model_dir), [LOCAL % tiny_model_dir])
    summary = execute(loaded, tmp_path / "runs")
    assert summary.exit == 5
    said = str(summary.error)
    assert "the reward critic is missing for each of the 8 responses of iteration 0: for example '" in said
    assert "', the answer to '" in said
    assert "; its critique is truncated (" in said


@pytest.mark.evidence
@pytest.mark.timeout(500)
def test_two_processes_are_rewarded_as_one_is(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = write(tmp_path, tiny_model_dir)
    one = policy_log(path, tmp_path / "one")
    two = ["vars.devices=2", "vars.strategy=ddp"]
    ran = fgrl("run", path, "--runs", tmp_path / "two", *two, cwd=tmp_path, timeout=400)
    assert ran.returncode == 0, ran.stderr
    both = policy_log(path, tmp_path / "two", *two)
    for name in (
        "reward",
        "missing",
        "tokens",
        "reward/positive",
        "reward/negative",
        "reward/unmatched",
        "reward/quotes",
    ):
        assert [row[name] for row in both] == pytest.approx([row[name] for row in one], abs=1e-4), name
