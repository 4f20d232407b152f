"""Prompts that are nothing but seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
from scratch_registry import scratch_imports
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.components.engines.hf import HF
from fgrl.components.readers.seeds import Seeds
from fgrl.experiments.pipeline import preconditions
from fgrl.experiments.recipe import load
from fgrl.experiments.stages import first_rows
from fgrl.kinds.specs import Sampling

RECIPE = """
about: "A game from seeds."
seed: 3
stages:
  policy:
    name: rl
    prompts: {{name: seeds, count: 12, start: 5}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: environment
    algorithm: {{name: grpo}}
    rollout:
      batch_size: 12
      per_prompt: 3
      environment: {{name: gym, make: "stand_in_games:make", max_turns: 3, max_turn_tokens: 6}}
      sampling: {{max_new_tokens: 120, max_prompt_tokens: 48, batch_size: 5}}
    train: {{lr: 1e-2, iterations: 3, batch_size: 6, micro_batch_size: 4, accelerator: cpu}}
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Any:
    with scratch_imports():
        path = tmp_path / "seeds.yaml"
        path.write_text(RECIPE.format(base=tiny_model_dir))
        yield path


def test_a_sample_for_each_seed() -> None:
    samples = list(Seeds(count=3, start=5).read())
    assert [(each.id, each.prompt, each.meta) for each in samples] == [
        (f"seed:{seed}", "", {"seed": seed}) for seed in (5, 6, 7)
    ]
    assert [each.prompt for each in Seeds(count=2, prompt="Play.").read()] == ["Play.", "Play."]
    assert [each.id for each in Seeds(count=10**8).first(2, 0)] == ["seed:0", "seed:1"]


def test_games_are_trained_from_seeds(recipe: Path) -> None:
    stage = load(recipe).stages["policy"]
    assert preconditions.unmet({"policy": stage}, {}).missing == []
    assert first_rows.look({"policy": stage}).problems == []
    stage.run(tiny_recipe.a_run(recipe.parent / "run", "policy"))
    log = tiny_recipe.log(recipe.parent / "run")
    assert len(log) == 3
    assert all(row["turns"] == 3 for row in log)


def test_an_empty_prompt_needs_an_environment(recipe: Path, tiny_model_dir: Path) -> None:
    stage = load(recipe, ["stages.policy.rollout.environment=null"]).stages["policy"]
    ((place, problem),) = first_rows.look({"policy": stage}).problems
    assert place == "stages.policy.prompts"
    assert "sample seed:5 has an empty prompt, and nothing brings another" in str(problem)
    model = tiny(tiny_model_dir)
    with pytest.raises(DataError, match="sample seed:0 has an empty prompt"):
        rollouts.draw(model, HF().open(model), list(Seeds(count=1).read()), Sampling(max_new_tokens=4), 1, seed=0)


def test_an_environment_without_a_prompt_of_its_own_needs_one(recipe: Path) -> None:
    tools = Path(__file__).with_name("word_env.py")
    changed = [f"stages.policy.rollout.environment={{name: functions, tools: ['{tools}:add'], max_turn_tokens: 6}}"]
    with pytest.raises(DataError, match=r"sample seed:.* has an empty prompt"):
        load(recipe, changed).stages["policy"].run(tiny_recipe.a_run(recipe.parent / "none", "policy"))


def test_a_missing_package_is_said_before_anything_runs(recipe: Path) -> None:
    stage = load(recipe, ["stages.policy.rollout.environment.make='nowhere:make'"]).stages["policy"]
    (missing,) = preconditions.unmet({"policy": stage}, {}).missing
    assert missing.startswith("stages.policy.rollout.environment: make: nowhere:make needs the package nowhere")
    assert "nowhere" not in sys.modules
