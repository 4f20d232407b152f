"""The two scalar baselines of span rewards are recipes: the critic's sum on the last token, and a reward model of pairs.

Text2Grad, appendix A (setting B: the same total, in another place) and appendix N.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import EOS, PAD, a_run, tiny

from fgrl import models, rollouts
from fgrl.base.mergeable import as_numbers
from fgrl.experiments import recipe
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.pipeline.log import read_log
from fgrl.registry import dump
from fgrl.types import Ref, Rollout, Sample

SPANS = """
about: "A critic's spans as token rewards."
vars: {{base: {base}}}
stages:
  policy:
    name: rl
    prompts: {{name: jsonl, path: answers.jsonl}}
    model: "${{vars.base}}"
    reward: {{name: critic, client: {{name: replay, answers: critiques.jsonl}}, prompt: critic.txt, token_policy: words}}
    algorithm: {{name: ppo, lam: 0.9, kl_coef: 0.0, values: none, whiten: false}}
    rollout: {{batch_size: 1, sampling: {{max_new_tokens: 10}}}}
    train: {{lr: 1e-3, iterations: 1, batch_size: 1, micro_batch_size: 1, accelerator: cpu}}
"""
SUM = """
extends: spans.yaml
about: "The same critic, its sum on the last token."
stages: {policy: {reward: {placement: last}}}
"""
PAIRS = """
extends: spans.yaml
about: "A scalar reward model of ranked pairs."
stages:
  annotated:
    name: annotate
    data: {name: jsonl, path: answers.jsonl}
    annotator: {name: rubric_score}
  pairs: {name: pair, data: {name: samples, of: "${out:annotated}"}, builder: {name: all_ranked}}
  reward_model:
    name: finetune
    data: {name: pairs, of: "${out:pairs}"}
    model: "${vars.base}"
    algorithm: {name: bradley_terry, segmenter: bandit}
    max_prompt_tokens: 48
    max_tokens: 96
    train: {lr: 1e-2, batch_size: 4, micro_batch_size: 4, epochs: 1, accelerator: cpu}
  policy: {reward: {name: segment_rm, model: "${out:reward_model}", credit: response, clamp: null}}
"""
TEXT = "the lamp stands on the old table"
CRITIQUE = {"textual_feedback": "so so", "good_spans": ["the lamp"], "poor_spans": ["old"]}


@pytest.fixture(scope="module")
def policies(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("scalar")
    (folder / "answers.jsonl").write_text(json.dumps({"id": "a", "prompt": "Where is the lamp?"}) + "\n")
    (folder / "critic.txt").write_text("Prompt: {prompt}\nResponse: {response}")
    (folder / "critiques.jsonl").write_text(json.dumps({"contains": TEXT, "answer": CRITIQUE}) + "\n")
    written = {"spans": SPANS.format(base=json.dumps(str(tiny_model_dir))), "sum": SUM, "pairs": PAIRS}
    for name, text in written.items():
        (folder / f"{name}.yaml").write_text(text)
    model = tiny(tiny_model_dir, head="scalar", trainable=True, seed=2)
    models.save(model, folder / "reward_model", {"segmenter": {"name": "bandit", "version": 1}, "aggregate": "last"})
    policies = {name: recipe.load(folder / f"{name}.yaml").stages["policy"] for name in written}
    run = a_run(folder / "run", products={"reward_model": folder / "reward_model"})
    for policy in policies.values():
        policy.reward.setup(run)
    return policies, model, run


def drawn(model: Any) -> Rollout:
    ids = [*model.tokenizer(TEXT, add_special_tokens=False).input_ids, EOS]
    tokens = rollouts.pad([[1, 20, 30]], [ids], PAD, {EOS})
    nothing = torch.zeros(tokens.mask.shape)
    return Rollout(
        **vars(tokens), group=torch.zeros(1, dtype=torch.long), samples=[Sample(id="a", prompt="Where is the lamp?")],
        texts=[TEXT], offsets=[rollouts.offsets(model.tokenizer, ids)], old_logp=nothing, ref_logp=nothing,
    )  # fmt: skip


def test_the_same_critic_differs_in_one_field_and_has_the_same_total_elsewhere(policies: Any) -> None:
    recipes, model, _run = policies
    spans, at_the_end = dump(recipes["spans"]), dump(recipes["sum"])
    assert at_the_end["reward"].pop("placement") == "last"
    assert spans["reward"].pop("placement") == "tokens"
    assert spans == at_the_end

    rollout = drawn(model)
    a, b = (recipes[name].reward.score(rollout) for name in ("spans", "sum"))
    assert float(a.response) == float(b.response) == float(b.token[0, -1]) == float(a.token.sum()) > 0
    assert not b.token[0, :-1].any()
    assert {1.0, -1.0} < set(a.token[0].tolist())
    of_spans, of_sum = (
        recipes[name].algorithm.advantages(rollout, rewards) for name, rewards in (("spans", a), ("sum", b))
    )
    last = rollout.mask.shape[1] - 1
    for t in range(last + 1):
        discounted = sum(0.9 ** (k - t) * float(a.token[0, k]) for k in range(t, last + 1))
        assert float(of_spans.advantage[0, t]) == pytest.approx(discounted, abs=1e-6)
        assert float(of_sum.advantage[0, t]) == pytest.approx(0.9 ** (last - t) * float(b.response), abs=1e-6)
    assert as_numbers(of_sum.metrics)["early_credit"] == pytest.approx(1.0)
    assert as_numbers(of_spans.metrics)["early_credit"] > 1.5


def test_a_reward_model_of_pairs_puts_one_number_on_the_last_token(policies: Any) -> None:
    recipes, model, _run = policies
    rollout = drawn(model)
    rewards = recipes["pairs"].reward.score(rollout)
    with torch.no_grad():
        wanted = model.rewards(rollout)[0, -1]
    assert float(rewards.response) == pytest.approx(float(wanted), abs=1e-5)
    assert rewards.token[0].tolist() == pytest.approx([0.0] * (rollout.mask.shape[1] - 1) + [float(wanted)], abs=1e-5)


def test_without_values_a_policy_is_trained_without_a_critic(policies: Any) -> None:
    recipes, _model, run = policies
    stage = recipes["pairs"]
    models_of_plan = stage.estimate(Peek(run.cache, None, {"reward_model": run.path(Ref("reward_model"))}))[
        "parameters"
    ]
    assert "actor" in str(models_of_plan)
    assert "critic" not in str(models_of_plan)
    stage.run(run)
    (row,) = read_log(run.dir / "log.jsonl")
    assert row["early_credit"] == 1.0
    assert row["grad_norm"] > 0
    assert not {"explained_variance", "value_loss", "critic_grad_norm"} & row.keys()
    assert (run.out / "model.safetensors").is_file()
