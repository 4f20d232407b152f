"""The KL to the reference and the exact entropy are measured on request, and change nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tiny_recipe
import torch
from tiny_recipe import a_run, alone, log, weights

from fgrl import rollouts
from fgrl.kinds.specs import ModelSpec
from fgrl.models import load
from fgrl.training.rollout_metrics import of_responses
from fgrl.types import Rewards, Rollout, Sample

SEVERAL = ("stages.policy.rollout.per_prompt=3", "stages.policy.train.iterations=3")
"""Two optimizer steps an iteration."""
ONE = (*SEVERAL, "stages.policy.train.batch_size=12")
WHOLE = (*SEVERAL, "stages.policy.model.lora=null")
"""Without an adapter the reference is a model of its own."""


@pytest.mark.parametrize("overrides", [SEVERAL, ONE, WHOLE], ids=["two steps", "one step", "all weights"])
def test_a_measured_kl_changes_nothing_else(overrides: tuple[str, ...], tmp_path: Path, tiny_model_dir: Path) -> None:
    recipe = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    folders = {}
    for measure in ("false", "true"):
        algorithm = f"stages.policy.algorithm={{name: grpo, measure_kl: {measure}}}"
        stage = alone(recipe, "policy", *overrides, algorithm)
        assert ("ref_logp" in stage.algorithm.needs()) == (measure == "true")
        folders[measure] = tmp_path / measure
        stage.run(a_run(folders[measure]))
    assert weights(folders["true"] / "out") == weights(folders["false"] / "out")
    plain, measured = log(folders["false"]), log(folders["true"])
    assert [{name: row[name] for name in row if name not in ("kl", "kl_loss")} for row in measured] == plain
    assert all("kl" not in row for row in plain)
    assert measured[0]["kl"] == pytest.approx(0, abs=1e-4)
    assert measured[-1]["kl"] != 0
    assert measured[-1]["kl_loss"] > 0


def test_a_measured_entropy_is_that_of_the_distribution_and_changes_nothing_else(
    tmp_path: Path, tiny_model_dir: Path
) -> None:
    """Draws from the two most probable tokens are more probable than draws from all: their -log p is no entropy."""
    recipe = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    truncated = [f"stages.policy.rollout.sampling.{key}" for key in ("top_k=2", "truncated=true")]
    folders = {}
    for measure in ("false", "true"):
        algorithm = f"stages.policy.algorithm={{name: grpo, measure_entropy: {measure}}}"
        stage = alone(recipe, "policy", *SEVERAL, *truncated, algorithm)
        folders[measure] = tmp_path / measure
        stage.run(a_run(folders[measure]))
    assert weights(folders["true"] / "out") == weights(folders["false"] / "out")
    plain, measured = log(folders["false"]), log(folders["true"])
    assert [row | {"entropy": 0} for row in measured] == [row | {"entropy": 0} for row in plain]
    vocabulary = len(load(ModelSpec(base=str(tiny_model_dir))).tokenizer)
    for exact, drawn in zip(measured, plain, strict=True):
        assert drawn["entropy"] + 0.5 < exact["entropy"] <= math.log(vocabulary)


def test_the_entropy_of_a_rollout_that_has_one_is_its_mean_over_real_tokens() -> None:
    tokens = rollouts.pad([[1], [1]], [[5, 6, 7], [8]], 0, {7})
    entropy = torch.tensor([[1.0, 2.0, 4.0], [0.5, float("nan"), float("nan")]])
    rollout = Rollout(
        **vars(tokens), group=torch.arange(2), samples=[Sample(id="x", prompt="")] * 2, texts=["a", "b"],
        old_logp=torch.full((2, 3), -9.0), entropy=entropy,
    )  # fmt: skip
    rewards = Rewards(response=torch.zeros(2), token=torch.zeros(2, 3), credit_mask=tokens.mask)
    assert of_responses(rollout, rewards)["entropy"] == pytest.approx((1 + 2 + 4 + 0.5) / 4)
