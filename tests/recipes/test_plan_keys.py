"""Which stages a change runs again, by `fgrl plan --json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fgrl.cli import app

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "small" / "segment_ppo.yaml"
STAGES = ["samples", "pairs", "reward_model", "calibrate", "policy", "evaluate"]


@pytest.fixture
def keys(tiny_model_dir: Path, tmp_path: Path):
    def keys(*overrides: str) -> dict[str, str]:
        arguments = ["plan", str(RECIPE), "--json", "--runs", str(tmp_path / "runs"), f"vars.sft={tiny_model_dir}"]
        result = CliRunner().invoke(app, [*arguments, *overrides])
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert list(told["stages"]) == STAGES
        return {name: stage["key"] for name, stage in told["stages"].items()}

    return keys


CHANGES = {
    "stages.policy.algorithm.kl_coef=0.123": ["policy", "evaluate"],
    "vars.cutoff=1.3": ["reward_model", "calibrate", "policy", "evaluate"],
    "stages.policy.reward.spread=last": ["policy", "evaluate"],
    'stages.calibrate.normalizer=global + stages.policy.reward.normalizer={name: global, fitted: "${out:calibrate}"}': [
        "calibrate",
        "policy",
        "evaluate",
    ],
    "stages.evaluate.prompts.limit=3": ["evaluate"],
    "stages.pairs.builder.max_per_prompt=2": ["pairs", "reward_model", "calibrate", "policy", "evaluate"],
    "seed=5": STAGES,
    "stages.reward_model.train.micro_batch_size=2": [],
    "stages.policy.train.micro_batch_size=4": [],
    "stages.samples.sampling.batch_size=7": [],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_runs_again_what_it_concerns_and_nothing_else(change: str, keys) -> None:
    before, after = keys(), keys(*change.split(" + "))
    assert [name for name in STAGES if before[name] != after[name]] == CHANGES[change]


def test_the_same_recipe_has_the_same_keys(keys) -> None:
    assert keys() == keys()
