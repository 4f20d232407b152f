"""A policy that talks to an environment, trained: micro-batches, resumes, refusals, and what the metrics count."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from safetensors.torch import load_file
from scratch_registry import scratch_imports

from fgrl.base.errors import DataError
from fgrl.experiments.recipe import load
from fgrl.training.online import OnlineRounds

ECHO = Path(__file__).resolve().parents[1] / "support" / "echo_environment.py"
RECIPE = """
about: "A letter to write, in turns."
seed: 3
imports: [echo_environment.py]
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: environment
    algorithm: {{name: grpo}}
    rollout:
      batch_size: 12
      per_prompt: 3
      environment: {{name: echo, max_turn_tokens: 6}}
      sampling: {{max_new_tokens: 80, max_prompt_tokens: 48, batch_size: 5}}
    train: {{lr: 1e-2, iterations: 3, batch_size: 6, micro_batch_size: 4, accelerator: cpu, eps: 1e-4}}
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Any:
    with scratch_imports():
        shutil.copy(ECHO, tmp_path / "echo_environment.py")
        (tmp_path / "topics.txt").write_text("\n".join(f"topic {number}" for number in range(9)))
        path = tmp_path / "talks.yaml"
        path.write_text(RECIPE.format(base=tiny_model_dir))
        yield path


def trained(recipe: Path, name: str, *changes: str) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Weights and log of a training."""
    folder = recipe.parent / name
    stage = load(recipe, [f"stages.policy.{change}" for change in changes]).stages["policy"]
    run = tiny_recipe.a_run(folder, "policy")
    stage.run(run)
    return load_file(next((folder / "out").glob("*.safetensors"))), tiny_recipe.log(folder)


PPO = ["algorithm={name: ppo, kl_coef: 0.05}", "train.critic_lr=1e-2"]


TURN_RLOO = ["algorithm={name: turn_rloo}"]
TURN_PPO = ["algorithm={name: ppo, gae_over: turn}", "train.critic_lr=1e-2", "rollout.environment.max_turns=2"]


@pytest.mark.parametrize("changes", [[], PPO, TURN_RLOO, TURN_PPO], ids=["grpo", "ppo", "turn_rloo", "ppo by turn"])
def test_micro_batches_change_no_training(recipe: Path, changes: list[str]) -> None:
    weights, log = trained(recipe, "whole", *changes)
    others, other_log = trained(recipe, "parts", "train.micro_batch_size=1", *changes)
    assert all(torch.allclose(weights[name], others[name], atol=1e-4) for name in weights)
    assert [row["tokens"] for row in log] == [row["tokens"] for row in other_log]
    assert all(row["turns"] > 1 and row["tokens"] <= 18 for row in log)


def test_a_killed_training_ends_with_the_same_bytes(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(recipe, "whole")

    def killed(_self: OnlineRounds, _rollout: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(OnlineRounds, "_scored", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(recipe, "killed")
    monkeypatch.undo()
    drawn = next((recipe.parent / "killed" / "drawn").iterdir())
    lines = drawn.read_bytes().split(b"\n")
    drawn.write_bytes(b"\n".join(lines[: len(lines) // 2]))  # in the middle of the conversations
    trained(recipe, "killed")
    whole, again = (tiny_recipe.weights(recipe.parent / name / "out") for name in ("whole", "killed"))
    assert whole == again


def test_the_reward_of_an_environment_needs_one(recipe: Path) -> None:
    with pytest.raises(DataError, match=r"rollout\.environment"):
        trained(recipe, "none", "rollout.environment=null")
