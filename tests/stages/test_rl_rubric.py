"""Prompts with rubrics through the `rl` stage, as a recipe and a pipeline run them, on the tiny model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import PrivateAttr
from scratch_registry import scratch_imports
from training_helpers import a_run, tiny

from fgrl.base.errors import DataError
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.engines.hf import HF, InBatches
from fgrl.experiments import recipe
from fgrl.experiments.pipeline import estimates, execute, plan
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.planning import Options
from fgrl.kinds import Reward
from fgrl.kinds.specs import Sampling
from fgrl.models import ActorCritic
from fgrl.registry import Problems
from fgrl.training.alarms import Alarms
from fgrl.training.online import OnlineRounds
from fgrl.training.trainer import OnlineSettings
from fgrl.training.training_module import TrainingModule
from fgrl.types import Rewards, Rollout, Sample

RECIPE = """
about: "Two iterations on prompts with rubrics."
seed: 1
vars: {{relevance: {{name: oracle}}}}
stages:
  policy:
    name: rl
    prompts: {{name: jsonl, path: prompts.jsonl}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: {{name: rubric, response: csr, relevance: "${{vars.relevance}}"}}
    algorithm: {{name: rtt_grpo, clip_high: 0.27, epochs: 2}}
    rollout: {{batch_size: 8, per_prompt: 4, sampling: {{max_new_tokens: 10, max_prompt_tokens: 48}}}}
    train: {{lr: 1e-2, iterations: 2, batch_size: 8, micro_batch_size: 3, accelerator: cpu, warmup: 0.0}}
"""


def write(folder: Path, base: Path, rubrics: int = 4) -> Path:
    prompts = []
    for i in range(4):
        letters = [("b", "at least"), ("o", "less than"), ("m", "at least")][: 2 + i % 2]  # random text has them or not
        rubric = [
            {"text": f"{letter}: {relation} once", "check": {"name": "keywords:letter_frequency", "letter": letter,
                                                             "let_frequency": 1, "let_relation": relation}}
            for letter, relation in letters
        ]  # fmt: skip
        prompts.append({"id": f"p{i}", "prompt": f"Say something of {i}", "rubric": rubric if i < rubrics else []})
    (folder / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts), encoding="utf-8")
    path = folder / "rubric.yaml"
    path.write_text(RECIPE.format(base=json.dumps(str(base))), encoding="utf-8")
    return path


def policy_log(path: Path, runs: Path, *overrides: str) -> list[dict[str, Any]]:
    loaded = recipe.load(path, list(overrides))
    summary = execute(loaded, runs)
    assert summary.exit == 0, summary.error
    (stage,) = plan(loaded, runs).stages
    assert (stage.dir / "out" / "fgrl.json").is_file()
    return read_log(stage.dir / "log.jsonl")


def test_prompts_with_rubrics_are_trained_on(steady_model_dir: Path, tmp_path: Path) -> None:
    """Two optimizer steps an iteration, verdicts and relevances of every response, a policy that moves; no reference."""
    rows = policy_log(write(tmp_path, steady_model_dir), tmp_path / "runs")
    assert [row["step"] for row in rows] == [0, 1]
    for row in rows:
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))
        assert row["reward/missing_verdicts"] == row["reward/unweighed"] == row["missing"] == 0
        assert 0 < row["reward/relevant"] < 1
        assert 0 < row["seconds/relevance"] <= row["seconds/score"]
        assert 2 <= row["reward/criteria"] <= 3
        assert 0 < row["reward/csr"] < 1
        assert row["reward"] == pytest.approx(row["reward/csr"], abs=0.2)
        assert row["token_advantage"] > 0.01
        assert "kl" not in row
    assert rows[0]["max_log_ratio"] > 1e-4  # the second pass is over a policy that the first has moved
    assert rows[0]["grad_norm"] > 0


BY_POLICY = '''
import json
from pathlib import Path

from fgrl.kinds import Relevance
from fgrl.registry import register


@register("by_policy")
class ByPolicy(Relevance):
    """How improbable the policy that answered finds each token."""

    def needs(self):
        return frozenset({"policy", "old_logp"})

    def weigh(self, rollout, checked):
        logp = rollout.policy.score(rollout).logp
        difference = float((logp - rollout.old_logp).abs().max())
        tokens = int(rollout.prompt_mask.sum() + rollout.mask.sum())
        with (Path(__file__).parent / "weighed.jsonl").open("a") as file:
            print(json.dumps({"tokens": tokens, "difference": difference}), file=file)
        return [(1 - logp[case.row].exp())[rollout.mask[case.row]].cpu() for case in checked]
'''


def test_a_relevance_asks_the_policy_that_answered(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = write(tmp_path, tiny_model_dir)
    (tmp_path / "by_policy.py").write_text(BY_POLICY, encoding="utf-8")
    path.write_text(path.read_text() + "imports: [by_policy.py]\n", encoding="utf-8")
    with scratch_imports():
        rows = policy_log(path, tmp_path / "runs", "vars.relevance={name: by_policy}")
    weighed = [json.loads(line) for line in (tmp_path / "weighed.jsonl").read_text().splitlines()]
    assert len(rows) == len(weighed) == 2
    for row, asked in zip(rows, weighed, strict=True):
        assert asked["difference"] < 1e-4, "another model, or other weights, than drew the responses"
        assert row["policy/forward_tokens"] == asked["tokens"] > 0
        assert row["reward/unweighed"] == 0
        assert 0.5 < row["reward/relevant"] <= 1


@pytest.mark.parametrize(("limit", "iterations", "prompts"), [(1, 1, 1), (3, 1, 2), (4, 2, 2), (100, 2, 2)])
def test_a_trial_answers_at_most_so_many_prompts(
    limit: int, iterations: int, prompts: int, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two iterations with two prompts each; every prompt is answered four times."""
    drawn: list[int] = []
    rest = InBatches.rest
    monkeypatch.setattr(InBatches, "rest", lambda self: drawn.append(len(self.waiting)) or rest(self))
    loaded = recipe.load(write(tmp_path, tiny_model_dir))
    summary = execute(loaded, tmp_path / "runs", Options(limit=limit))
    assert summary.exit == 0, summary.error
    assert drawn == [4 * prompts] * iterations
    (stage,) = plan(loaded, tmp_path / "runs", limit=limit).stages
    assert stage.cached
    reported = json.loads((stage.dir / "stage.json").read_text())
    assert f'"responses": {sum(drawn)}' in json.dumps(reported)


@pytest.mark.parametrize(
    "overrides",
    [
        ("stages.policy.algorithm={name: grpo, kl_coef: 0.1, skip_zero_variance: true}", "stages.policy.reward.relevance=null"),
        ("vars.relevance={name: random}", "stages.policy.reward.response=aon", "stages.policy.model.lora=null"),
        ("vars.relevance={name: uniform}", "stages.policy.algorithm.partition=inter_sample"),
    ],
)  # fmt: skip
def test_other_algorithms_and_relevances(overrides: tuple[str, ...], tiny_model_dir: Path, tmp_path: Path) -> None:
    path = write(tmp_path, tiny_model_dir)
    rows = policy_log(path, tmp_path / "runs", *overrides)
    assert len(rows) == 2
    assert all(math.isfinite(row["policy_loss"]) for row in rows)
    assert ("kl" in rows[0]) == ("grpo, kl_coef" in overrides[0])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "stages.policy.reward.relevance=null",
            "rtt_grpo learns from rewards of single tokens, .* and the reward rubric .*: grpo, ppo",
        ),
        ("stages.policy.rollout.per_prompt=1", "rtt_grpo compares the responses to a prompt"),
    ],
)
def test_what_cannot_learn_is_refused_before_anything_runs(
    override: str, message: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(Problems, match=message):
        recipe.load(write(tmp_path, tiny_model_dir), [override])


def test_a_prompt_without_a_rubric_is_told_before_training(tiny_model_dir: Path, tmp_path: Path) -> None:
    loaded = recipe.load(write(tmp_path, tiny_model_dir, rubrics=3))
    stage = loaded.stages["policy"]
    with pytest.raises(DataError, match="sample p3 has no rubric"):
        stage.run(a_run(tmp_path / "stage"))
    assert not (tmp_path / "stage" / "log.jsonl").exists()


def test_a_plan_counts_the_reference_only_where_it_is_asked(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = write(tmp_path, tiny_model_dir)
    full, kl = "stages.policy.model.lora=null", "stages.policy.algorithm.kl_coef=0.1"
    for overrides, wanted in {(full,): False, (full, kl): True, (): False, (kl,): True}.items():
        found = estimates(plan(recipe.load(path, list(overrides)), tmp_path / "runs"))["policy"]["parameters"]
        assert ("reference" in found) is wanted
        assert "critic" not in found


# -- what is left out of training --------------------------------------------------------------------------------------


class Halves(Reward):
    """The first prompt's responses differ in worth, the others' do not."""

    reads_reference = False
    _seen: list[Rollout] = PrivateAttr(default_factory=list)

    def score(self, rollout: Rollout) -> Rewards:
        self._seen.append(rollout)
        worth = torch.where(rollout.group == 0, torch.arange(len(rollout.group)).float(), 0.1)
        return Rewards(worth, torch.zeros(rollout.mask.shape), rollout.mask)


@pytest.mark.parametrize("skip", [True, False])
def test_groups_that_teach_nothing_are_in_no_step(skip: bool, tiny_model_dir: Path, tmp_path: Path) -> None:
    reward, trained = Halves(), []
    algorithm = GRPO(skip_zero_variance=skip)
    loss = algorithm.loss
    object.__setattr__(algorithm, "loss", lambda model, batch: trained.append(batch) or loss(model, batch))
    actor = tiny(tiny_model_dir, trainable=True)
    rounds = OnlineRounds(
        ActorCritic(actor), algorithm, reward,
        [Sample(id=str(i), prompt=f"Question {i}") for i in range(2)],
        OnlineSettings(lr=1e-3, batch_size=4, micro_batch_size=4, accelerator="cpu", iterations=1), a_run(tmp_path),
        drawer=HF().open(actor), sampling=Sampling(max_new_tokens=6), rollout_batch_size=8, per_prompt=4,
        alarms=Alarms(**dict.fromkeys(Alarms.model_fields)),
    )  # fmt: skip
    TrainingModule(rounds).fit(checkpoint_every=1)
    (rollout,) = reward._seen
    seen = sorted(ids[real].tolist() for b in trained for ids, real in zip(b.response_ids, b.mask, strict=True))
    kept = range(4) if skip else range(8)
    assert seen == sorted(rollout.response_ids[i][rollout.mask[i]].tolist() for i in kept)
    (row,) = read_log(tmp_path / "log.jsonl")
    assert row["idle"] == 0.5
    assert row["zero_variance"] == 0.5
