"""`fgrl inspect` of a training with a critic: what its head, which is new, would compute is not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fgrl.cli import app

RECIPE = """about: "Short answers."
stages:
  policy:
    name: rl
    prompts: {name: jsonl, path: prompts.jsonl, format: prompts}
    model: BASE
    reward: {name: function, path: "rewards.py:score"}
    algorithm: ALGORITHM
    rollout: {batch_size: 4, per_prompt: 2, sampling: {max_new_tokens: 4, max_prompt_tokens: 16}}
    train: {lr: 1e-4, batch_size: 4, micro_batch_size: 4, iterations: 1}
"""
REWARD = "def score(completions, **kwargs):\n    return [float(len(text)) for text in completions]\n"


@pytest.mark.parametrize(("algorithm", "shown"), [("ppo", False), ("grpo", True)])
def test_advantages_of_a_new_critic_are_not_shown(
    algorithm: str, shown: bool, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = RECIPE.replace("BASE", json.dumps(str(tiny_model_dir))).replace("ALGORITHM", algorithm)
    (tmp_path / "r.yaml").write_text(text)
    (tmp_path / "rewards.py").write_text(REWARD)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Say it."}\n{"prompt": "Again."}\n')
    done = CliRunner().invoke(app, ["inspect", "r.yaml", "-n", "2", "--json"])
    assert done.exit_code == 0, done.output
    samples = json.loads(done.stdout)["samples"]
    assert ["advantage" in sample["layers"] for sample in samples] == [shown] * 2
    assert ("advantages are not shown" in done.stderr) != shown
