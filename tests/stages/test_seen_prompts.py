"""An evaluation warns of models that were trained on its prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fgrl.experiments import recipe
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.stages import overlaps
from fgrl.rollouts import trained_prompts
from fgrl.types import Message

RECIPE = """about: two trainings, and an evaluation of both
stages:
  sft:
    name: finetune
    data: {{name: jsonl, path: first.jsonl}}
    model: {{base: {base}, lora: {{r: 2, alpha: 4}}}}
    algorithm: sft
    train: {{lr: 1e-3, batch_size: 2, accelerator: cpu}}
    holdout: 0.25
  policy:
    name: finetune
    data: {{name: jsonl, path: second.jsonl}}
    model: {{base: "${{out:sft}}", lora: {{r: 2, alpha: 4}}}}
    algorithm: sft
    train: {{lr: 1e-3, batch_size: 2, accelerator: cpu}}
  evaluate:
    name: evaluate
    prompts: {{name: jsonl, path: evaluated.jsonl}}
    models: {{policy: "${{out:policy}}", sft: "${{out:sft}}", base: {base}}}
    baseline: base
    sampling: {{max_new_tokens: 2}}
    metrics: [length]
"""


def write(file: Path, *prompts: str) -> None:
    lines = (
        json.dumps({"id": str(i), "prompt": prompt, "reference": "yes"}) + "\n" for i, prompt in enumerate(prompts)
    )
    file.write_text("".join(lines), encoding="utf-8")


def test_prompts_of_a_training_and_of_those_before_it_are_counted(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last quarter of the first training's data is held out: no training reads it."""
    write(tmp_path / "first.jsonl", "one", "two", "three", "held out")
    write(tmp_path / "second.jsonl", "four", "five")
    write(tmp_path / "evaluated.jsonl", "two", "five", "held out", "new")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.format(base=json.dumps(str(tiny_model_dir))), encoding="utf-8")
    loaded = recipe.load(path)
    summary = execute(loaded, tmp_path / "runs")
    assert summary.exit == 0, summary.error
    warnings = [line for line in capsys.readouterr().err.splitlines() if "was trained on" in line]
    assert [line.partition("warning: ")[2].partition(" that")[0] for line in warnings] == [
        "policy was trained on 2 of the 4 prompts", "sft was trained on 1 of the 4 prompts",
    ]  # fmt: skip
    folders = {stage.name: stage.dir / "out" for stage in plan(loaded, tmp_path / "runs").stages}
    assert trained_prompts.read(folders["policy"]) == {
        digest for text in ("one", "two", "three", "four", "five") for digest in trained_prompts.digests(text)
    }
    write(tmp_path / "evaluated.jsonl", "held out", "new")
    assert execute(loaded, tmp_path / "runs").exit == 0
    assert "was trained on" not in capsys.readouterr().err


def test_a_plan_counts_them_in_small_files_alone(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "first.jsonl", "one", "two", "three", "held out")
    write(tmp_path / "second.jsonl", "four", "five")
    write(tmp_path / "evaluated.jsonl", "two", "five")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.format(base=json.dumps(str(tiny_model_dir))), encoding="utf-8")
    planned = plan(recipe.load(path), tmp_path / "runs")
    assert "policy is trained on" in estimates(planned)["evaluate"]["overlap"]
    monkeypatch.setattr(overlaps, "MOST_BYTES", (tmp_path / "evaluated.jsonl").stat().st_size - 1)
    assert "overlap" not in estimates(planned)["evaluate"]


def test_a_text_and_its_turns_are_different_prompts() -> None:
    turns = [Message(role="system", content="Be brief."), Message(role="user", content="Why?")]
    digests = {trained_prompts.digest(prompt) for prompt in ("Why?", turns, turns[1:], "\ud800")}
    assert len(digests) == 4
    assert all(0 <= digest < 2**64 for digest in digests)
    assert trained_prompts.read(Path("/nowhere")) == frozenset()
