"""`fgrl inspect` of an `rl` stage whose reward reads rubrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fgrl.cli import app

RECIPE = """
about: "Rubrics."
seed: 1
stages:
  policy:
    name: rl
    prompts: {{name: jsonl, path: prompts.jsonl}}
    model: {{base: {base}}}
    reward: {{name: rubric, relevance: {relevance}}}
    algorithm: {{name: grpo}}
    rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 12, max_prompt_tokens: 48}}}}
    train: {{lr: 1e-3, iterations: 1, batch_size: 4, micro_batch_size: 4, accelerator: cpu}}
"""
CHECK = {"name": "keywords:letter_frequency", "letter": "q", "let_frequency": 90, "let_relation": "at least"}


@pytest.fixture
def show(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rubric = [{"text": "ninety q", "check": CHECK}, {"text": "few q", "check": CHECK | {"let_relation": "less than"}}]
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"id": "1", "prompt": "Say it.", "rubric": rubric}) + "\n")

    def inspect(relevance: str, *more: str) -> str:
        path = tmp_path / "r.yaml"
        path.write_text(RECIPE.format(base=json.dumps(str(tiny_model_dir)), relevance=relevance), encoding="utf-8")
        done = CliRunner().invoke(app, ["inspect", str(path), "-n", "1", *more])
        assert done.exit_code == 0, done.output
        return done.stdout

    return inspect


def test_every_criterion_with_its_verdict_and_relevance(show) -> None:
    text = show("uniform")
    assert "✗ broken  ninety q\n[" in text
    assert "✓ kept  few q\n[" in text
    assert text.count(" | 1]\n") == 2


def test_without_relevance_the_verdicts_are_shown(show) -> None:
    text = show("null")
    assert text.count("which tokens its verdict depends on is not known") == 2


def test_as_json(show) -> None:
    (sample,) = json.loads(show("oracle", "--json"))["samples"]
    ends = [kind for kind in sample["kinds"] if kind in ("response", "eos")]
    assert [(one["text"], one["kept"], len(one["relevance"])) for one in sample["criteria"]] == [
        ("ninety q", False, len(ends)), ("few q", True, len(ends)),
    ]  # fmt: skip
