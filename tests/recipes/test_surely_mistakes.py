"""Values of the right type that are surely a mistake: each is refused at its field, with what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from wording import said

from fgrl.experiments.recipe import load
from fgrl.registry import Problems
from fgrl.registry.problems import dotted

ROOT = Path(__file__).resolve().parents[2]
PPO = "recipes/small/segment_ppo.yaml"


MISTAKES: list[tuple[str, str, str]] = [
    # recipe, override, where
    (PPO, "stages.policy.train.betas=[2, 2]", "stages.policy.train.betas[0]"),
    (PPO, "stages.reward_model.model.head=lm", "stages.reward_model.model.head"),
    (PPO, "stages.policy.model.head=scalar", "stages.policy.model.head"),
    (PPO, "stages.samples.model.head=token", "stages.samples.model.head"),
    (PPO, "stages.evaluate.models.sft.head=scalar", "stages.evaluate.models.sft.head"),
    (PPO, "stages.policy.model.lora={targets: []}", "stages.policy.model.lora.targets"),
    (PPO, "stages.policy.model.lora={targets: [q_prj]}", "stages.policy.model.lora.targets[0]"),
    (PPO, 'stages.policy.model=""', "stages.policy.model.base"),
    (PPO, 'stages.policy.model.base="  "', "stages.policy.model.base"),
    (PPO, "stages.policy.model.base=./nowhere", "stages.policy.model.base"),
    (PPO, "stages.policy.model.base=~nobody/models", "stages.policy.model.base"),
    (PPO, "stages.policy.model.base=/nowhere/at/all", "stages.policy.model.base"),
    (PPO, "stages.policy.model.base=/", "stages.policy.model.base"),
    (PPO, "stages.policy.model.base=models/of/mine", "stages.policy.model.base"),
    (PPO, "stages.samples.prompts={name: hf, format: prompts, path: ./nowhere}", "stages.samples.prompts.path"),
    (PPO, "stages.reward_model.max_prompt_tokens=256", "stages.reward_model.max_prompt_tokens"),
    (PPO, "stages.calibrate.max_prompt_tokens=300", "stages.calibrate.max_prompt_tokens"),
    (PPO, "stages.policy.model=${out:reward_model}", "stages.policy.model.base"),
    (PPO, "stages.evaluate.models.policy.base=${out:reward_model}", "stages.evaluate.models.policy.base"),
    (PPO, "stages.evaluate.metrics=[]", "stages.evaluate.metrics"),
    (PPO, "stages.evaluate.models={}", "stages.evaluate.models"),
    (PPO, "stages.policy.prompts.path=/dev/null", "stages.policy.prompts.path"),
    (PPO, "stages.policy.prompts.path=.", "stages.policy.prompts.path"),
    (PPO, "stages.policy.prompts.limit=4", "stages.policy.prompts.limit"),
    (PPO, "stages.samples.per_prompt=1", "stages.pairs.data.of"),
    ("recipes/rla_llama3.yaml", "stages.samples.per_prompt=1", "stages.pairs.data.of"),
    (PPO, "stages.policy.train.nodes=1000000", "stages.policy.train.nodes"),
    (PPO, "stages.reward_model.holdout=0.999", "stages.reward_model.holdout"),
    (PPO, "stages.policy.train.lr=1e9", "stages.policy.train.lr"),
    (PPO, "stages.policy.train.critic_lr=1e9", "stages.policy.train.critic_lr"),
    (PPO, "stages.policy.algorithm.kl_coef=1e30", "stages.policy.algorithm.kl_coef"),
    (PPO, "stages.policy.rollout.sampling.temperature=1e300", "stages.policy.rollout.sampling.temperature"),
    (PPO, "stages.policy.rollout.sampling.temperature=1e-30", "stages.policy.rollout.sampling.temperature"),
    (PPO, "stages.policy.train.eps=1e10", "stages.policy.train.eps"),
    (PPO, "stages.policy.train.clip_norm=1e-300", "stages.policy.train.clip_norm"),
    (PPO, "stages.policy.train.weight_decay=100", "stages.policy.train.weight_decay"),
    (PPO, "stages.policy.model.lora={alpha: 1e30}", "stages.policy.model.lora.alpha"),
    (PPO, "stages.policy.train.iterations=1000000000", "stages.policy.train.iterations"),
    (PPO, "stages.policy.rollout.per_prompt=1000000000", "stages.policy.rollout.per_prompt"),
    (PPO, "stages.policy.algorithm.clip=1e300", "stages.policy.algorithm.clip"),
    (PPO, "stages.reward_model.train.epochs=1000000000", "stages.reward_model.train.epochs"),
    (PPO, "seed=18446744073709551616", "seed"),
]  # fmt: skip


@pytest.mark.parametrize(("recipe", "override", "where"), MISTAKES, ids=[mistake[1] for mistake in MISTAKES])
def test_a_mistake_of_the_right_type_is_refused(recipe: str, override: str, where: str) -> None:
    with pytest.raises(Problems) as refused:
        load(ROOT / recipe, [override])
    problems = refused.value.problems
    assert where in [dotted(problem.path) for problem in problems], str(refused.value)
    said("validate", f"{recipe} {override}", "\n".join(str(replace(problem, place=None)) for problem in problems))
    assert all(problem.place is not None for problem in problems)


def test_nothing_to_compare_with_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("a topic\n", encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "about: x\nstages:\n  evaluate:\n    name: evaluate\n    prompts: {name: lines, path: prompts.txt}\n"
        "    models: {}\n    baseline: sft\n    metrics: [length]\n",
        encoding="utf-8",
    )
    with pytest.raises(Problems, match="nothing to compare: name models under `models`"):
        load(recipe)


@pytest.mark.parametrize(
    "override",
    [
        "stages.policy.model.lora={targets: [q_proj, self_attn.v_proj]}", "stages.policy.train.betas=[0, 0.999]",
        "stages.policy.prompts.limit=32", "stages.samples.per_prompt=2", "stages.policy.train.micro_batch_size=16",
        "stages.reward_model.model.head=scalar", "stages.policy.critic={base: smollm2-135m-instruct, head: scalar}",
        "stages.policy.model.base=unknown-owner/never-downloaded", "seed=4294967295",
    ],
)  # fmt: skip
def test_what_is_no_mistake_is_accepted(override: str) -> None:
    assert load(ROOT / PPO, [override]).stages
