"""Values of the right type that are surely a mistake: each is refused at its field, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgrl.recipe import load
from fgrl.registry import Problems
from fgrl.registry.problems import dotted

ROOT = Path(__file__).resolve().parents[2]
PPO = "recipes/small/segment_ppo.yaml"


MISTAKES: list[tuple[str, str, str, str]] = [
    # recipe, override, where, what is said
    (PPO, "stages.policy.train.betas=[2, 2]", "stages.policy.train.betas[0]", "wants a number < 1, got 2"),
    (PPO, "stages.reward_model.model.head=lm", "stages.reward_model.model.head", "wants scalar or null here, got lm"),
    (PPO, "stages.policy.model.head=scalar", "stages.policy.model.head", "wants lm or null here, got scalar"),
    (PPO, "stages.samples.model.head=token", "stages.samples.model.head", "wants lm or null here, got token"),
    (PPO, "stages.evaluate.models.sft.head=scalar", "stages.evaluate.models.sft.head", "wants lm or null"),
    (PPO, "stages.policy.model.lora={targets: []}", "stages.policy.model.lora.targets", "got an empty list"),
    (PPO, "stages.policy.model.lora={targets: [q_prj]}", "stages.policy.model.lora.targets[0]",
     'no linear layer of the model is called "q_prj"; did you mean "q_proj"?'),
    (PPO, 'stages.policy.model=""', "stages.policy.model.base", "wants a hub id (owner/name), a folder"),
    (PPO, 'stages.policy.model.base="  "', "stages.policy.model.base", "this one names nothing"),
    (PPO, "stages.policy.model.base=./nowhere", "stages.policy.model.base", "no such folder: ./nowhere"),
    (PPO, "stages.policy.model.base=~nobody/models", "stages.policy.model.base", "no such folder"),
    (PPO, "stages.policy.model.base=/nowhere/at/all", "stages.policy.model.base", "no such folder: /nowhere/at/all"),
    (PPO, "stages.policy.model.base=/", "stages.policy.model.base", "the folder / contains no model"),
    (PPO, "stages.policy.model.base=models/of/mine", "stages.policy.model.base", "no such folder: models/of/mine"),
    (PPO, "stages.samples.prompts={name: hf, format: prompts, path: ./nowhere}", "stages.samples.prompts.path", "no such folder: ./nowhere"),
    (PPO, "stages.reward_model.max_prompt_tokens=256", "stages.reward_model.max_prompt_tokens", "is not below max_tokens 256"),
    (PPO, "stages.calibrate.max_prompt_tokens=300", "stages.calibrate.max_prompt_tokens", "is not below max_tokens 256"),
    (PPO, "stages.policy.model=${out:reward_model}", "stages.policy.model.base", "has no next-token logits: name a language model"),
    (PPO, "stages.evaluate.models.policy.base=${out:reward_model}", "stages.evaluate.models.policy.base", "a scalar head"),
    (PPO, "stages.evaluate.metrics=[]", "stages.evaluate.metrics", "wants at least 1 item, got 0"),
    (PPO, "stages.evaluate.models={}", "stages.evaluate.models", "an empty mapping changes nothing here"),
    (PPO, "stages.policy.prompts.path=/dev/null", "stages.policy.prompts.path", '"/dev/null" is a device or a pipe'),
    (PPO, "stages.policy.prompts.path=.", "stages.policy.prompts.path", 'wants a file, and "." is a folder'),
    (PPO, "stages.policy.prompts.limit=4", "stages.policy.prompts.limit", "below the 32 prompts of one iteration"),
    (PPO, "stages.samples.per_prompt=1", "stages.pairs.data.of", "draws one response per prompt, and a pair needs two"),
    ("recipes/rla_llama3.yaml", "stages.samples.per_prompt=1", "stages.pairs.data.of", 'stage "samples" draws one response per prompt'),
    (PPO, "stages.policy.train.nodes=2", "stages.policy.train.nodes", "training on several nodes does not work yet"),
    (PPO, "stages.policy.train.micro_batch_size=17", "stages.policy.train.micro_batch_size", "larger than batch_size 16"),
    (PPO, "stages.reward_model.holdout=0.999", "stages.reward_model.holdout", "wants a number <= 0.5, got 0.999"),
    (PPO, "stages.policy.train.lr=1e9", "stages.policy.train.lr", "wants a number <= 1"),
    (PPO, "stages.policy.train.critic_lr=1e9", "stages.policy.train.critic_lr", "wants a number <= 1"),
    (PPO, "stages.policy.algorithm.kl_coef=1e30", "stages.policy.algorithm.kl_coef", "wants a number <= 100, got 1e+30"),
    (PPO, "stages.policy.rollout.sampling.temperature=1e300", "stages.policy.rollout.sampling.temperature", "wants a number <= 100"),
    (PPO, "stages.policy.rollout.sampling.temperature=1e-30", "stages.policy.rollout.sampling.temperature", "wants 0 (greedy), or 0.001"),
    (PPO, "stages.policy.train.eps=1e10", "stages.policy.train.eps", "wants a number <= 1, got 10000000000.0"),
    (PPO, "stages.policy.train.clip_norm=1e-300", "stages.policy.train.clip_norm", "wants a number >= 1e-06"),
    (PPO, "stages.policy.train.weight_decay=100", "stages.policy.train.weight_decay", "wants a number <= 10, got 100"),
    (PPO, "stages.policy.model.lora={alpha: 1e30}", "stages.policy.model.lora.alpha", "got 1e+30"),
    (PPO, "stages.policy.train.iterations=1000000000", "stages.policy.train.iterations", "<= 1e+07"),
    (PPO, "stages.policy.rollout.per_prompt=1000000000", "stages.policy.rollout.per_prompt", "<= 100000"),
    (PPO, "stages.policy.algorithm.clip=1e300", "stages.policy.algorithm.clip", "<= 1e+06"),
    (PPO, "stages.reward_model.train.epochs=1000000000", "stages.reward_model.train.epochs", "<= 100000"),
    (PPO, "seed=18446744073709551616", "seed", "wants a number from 0 to 4294967295, got 18446744073709551616"),
]  # fmt: skip


@pytest.mark.parametrize(("recipe", "override", "where", "says"), MISTAKES, ids=[mistake[1] for mistake in MISTAKES])
def test_a_mistake_of_the_right_type_is_refused(recipe: str, override: str, where: str, says: str) -> None:
    with pytest.raises(Problems) as refused:
        load(ROOT / recipe, [override])
    problems = refused.value.problems
    assert where in [dotted(problem.path) for problem in problems], str(refused.value)
    assert says in str(refused.value)
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
