"""Every small recipe of segment PPO, two steps of every training stage, on the tiny random model, from prompts to the report.

One runs folder for all: stages that recipes share are made once.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from test_recipes import FOUND, ROWS, small

from fgrl import models
from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.recipe import Recipe, load
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import name_of
from fgrl.types import Checkpoint, Pairs, Report, Samples, Stats

SMALL = [*map(small, ROWS), "quickstart"]
RULE = '{name: "length_constraints:number_words", relation: less than, num_words: 4}'
"""Random text keeps it about as often as it breaks it, so that there are pairs."""
LIMITS = {
    "sample": ["prompts.limit=12", "per_prompt=4", "sampling.max_new_tokens=12"],
    "finetune": ["train.max_steps=2", "train.batch_size=4", "train.micro_batch_size=4"],
    "rl": ["prompts.limit=8", "rollout.batch_size=4", "rollout.sampling.max_new_tokens=12", "train.iterations=2",
           "train.batch_size=4", "train.micro_batch_size=4"],
    "evaluate": ["prompts.limit=4", "sampling.max_new_tokens=12"],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes") / "runs"


def reduced(name: str, model_dir: Path) -> Recipe:
    """The recipe with the tiny model and little to do; nothing else of it is changed."""
    start = [f"vars.sft={model_dir}", f"vars.rule={RULE}", "vars.lora.r=2"]
    if name == "quickstart":  # it adapts the last blocks; the tiny model has two
        start += ["vars.lora.last_blocks=1", "stages.policy.critic.lora.last_blocks=1"]
    stages = load(FOUND[name], start).data["stages"]
    limits = [
        f"stages.{stage_name}.{limit}"
        for stage_name, stage in stages.items()
        for limit in LIMITS.get(stage["name"], [])
    ]
    return load(FOUND[name], [*start, *limits])


def finite(rows: list[dict[str, Any]], *names: str) -> bool:
    return all(isinstance(row[name], float) and math.isfinite(row[name]) for row in rows for name in names)


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, tiny_model_dir: Path, runs: Path) -> None:
    recipe = reduced(name, tiny_model_dir)
    summary = execute(recipe, runs)
    assert summary.exit == 0, summary.error
    assert list(summary.stages) == list(recipe.stages)
    made = {stage.name: stage.dir for stage in plan(recipe, runs).stages}
    assert all(stage.cached for stage in plan(recipe, runs).stages)
    # what every run leaves behind
    page = summary.report.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert all(name in page for name in recipe.stages)
    measured = Report(made["evaluate"] / "out").read()
    kept = measured["metrics"]["rule"]
    assert set(kept) - {"differences"} == set(recipe.stages["evaluate"].models)
    assert (made["evaluate"] / "out" / "answers.jsonl").read_text(encoding="utf-8").count("\n") == 4 * len(
        recipe.stages["evaluate"].models
    )
    # the stages that it has
    if "samples" in made:
        drawn = list(Samples(made["samples"] / "out").read())
        assert [len(sample.responses) for sample in drawn] == [4] * 12
        pairs = list(Pairs(made["pairs"] / "out").read())
        assert len(pairs) >= 8
    if "reward_model" in made:
        rows = read_log(made["reward_model"] / "log.jsonl")
        assert [row["step"] for row in rows] == [1, 2]
        assert finite(rows, "loss", "accuracy", "grad_norm")
        about = Checkpoint(made["reward_model"] / "out").about()
        assert about["segmenter"]["name"] == name_of(recipe.stages["reward_model"].algorithm.segmenter)[1]
        assert about["model"]["head"] == "scalar"
    if "calibrate" in made:
        stats = Stats(made["calibrate"] / "out").read()
        assert stats["normalizer"] == name_of(recipe.stages["calibrate"].normalizer)[1]
    if "policy" in made:
        check_policy(recipe, made["policy"], tiny_model_dir)


def check_policy(recipe: Recipe, folder: Path, base: Path) -> None:
    """Two steps were taken and logged, and what they changed can be loaded."""
    rows = read_log(folder / "log.jsonl")
    assert len(rows) == 2
    if recipe.data["stages"]["policy"]["name"] == "rl":
        assert finite(rows, "reward", "kl", "tokens", "policy_loss", "value_loss", "grad_norm", "critic_grad_norm")
        assert rows[0]["max_log_ratio"] < 0.05  # bfloat16
        assert rows[0]["missing"] == 0
    else:
        assert finite(rows, "loss", "accuracy", "grad_norm")
    policy = models.load(ModelSpec(base=str(folder / "out")))
    assert policy.head == "lm"
    assert policy.adapted
    plain = models.load(ModelSpec(base=str(base), dtype="bfloat16"))
    ids = torch.tensor([[1, 50, 60, 70]])
    with torch.no_grad():
        one, other = (model.transformer(input_ids=ids).logits.float() for model in (policy, plain))
    assert not torch.equal(one, other)


def test_a_finished_recipe_is_finished(tiny_model_dir: Path, runs: Path) -> None:
    again = execute(reduced("small/segment_ppo", tiny_model_dir), runs)
    assert again.nothing_to_do
    assert again.exit == 0


def test_recipes_share_what_they_have_in_common(tiny_model_dir: Path, runs: Path) -> None:
    """One set of samples and pairs for all, and as many reward models as there are ways to train one."""
    plans = [plan(reduced(name, tiny_model_dir), runs) for name in SMALL]
    keys: dict[str, set[str]] = {}
    for stage in (stage for one in plans for stage in one.stages):
        keys.setdefault(stage.name, set()).add(stage.key)
    assert len(keys["samples"]) == len(keys["pairs"]) == 1
    assert len(keys["reward_model"]) == 12  # bandit, sentence, token, 4 n-grams, 4 cutoffs, and the quickstart's
    done = {path.parent.name.rsplit("-", 1)[1] for path in (runs / "stages").glob("*/stage.json")}
    assert done == set().union(*keys.values())
    for one in plans:
        told = json.loads((one["evaluate"].dir / "stage.json").read_text(encoding="utf-8"))
        assert set(told["upstream"]) <= {stage.name for stage in one.stages}
