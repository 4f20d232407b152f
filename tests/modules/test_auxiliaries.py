"""Models that are trained beside the policy: with a scalar head, with a reference of their own, declared by a reward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from scratch_registry import scratch
from tiny_recipe import a_run, log, weights

from fgrl.base import ops
from fgrl.base.errors import Stopped, UnknownNeed, UserCodeError
from fgrl.experiments.recipe import load
from fgrl.kinds import Auxiliary, AuxiliarySettings, Reward, RewardWrapper
from fgrl.registry import Problems, register
from fgrl.types import Batch, Rewards, Rollout

RECIPE = """
about: "Two iterations with a model that learns rewards."
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: prompts.txt}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8}}}}
    reward: {reward}
    algorithm: {{name: grpo}}
    rollout: {{batch_size: 8, per_prompt: 2, sampling: {{max_new_tokens: 6, max_prompt_tokens: 48}}}}
    train: {{lr: 1e-2, iterations: 2, batch_size: 4, micro_batch_size: 2, accelerator: cpu, eps: 1e-4}}
"""


class Learned(Reward):
    """The mean of what a model says about the tokens; the model learns the share of even token ids."""

    guess: AuxiliarySettings = AuxiliarySettings()
    """The model."""
    named: str = "guess"
    """Name of the model."""
    reference: bool = True
    """Read the model's start, too."""
    broken: bool = False
    """Return a loss that is no number."""

    def auxiliaries(self) -> Mapping[str, Auxiliary]:
        return {self.named: Auxiliary(self.guess, self.guess_loss, head="scalar", reference=self.reference)}

    def guess_loss(self, model: Any, batch: Batch) -> Any:
        if self.broken:
            return torch.zeros(3), {}
        far = (model.values(batch) - (batch.response_ids % 2 == 0).float()).square()
        return ops.aggregate(far, batch.mask, "token_mean", **batch.totals()), {"far": far.detach().mean()}

    def score(self, rollout: Rollout) -> Rewards:
        said = rollout.columns["guess_values"]
        assert not self.reference or rollout.columns["guess_ref_values"].shape == said.shape
        response = ops.masked_mean(said, rollout.mask, dim=1) + rollout.response_ids[:, 0] % 3
        return Rewards(response, torch.zeros(rollout.mask.shape), rollout.mask)


class Same(RewardWrapper):
    """Another reward as it is."""

    def score(self, rollout: Rollout) -> Rewards:
        return self.reward.scored(rollout)


def stage(folder: Path, base: Path, reward: str = "{name: same, reward: learned}", *overrides: str) -> Any:
    (folder / "prompts.txt").write_text("".join(f"Say {word}\n" for word in ("a", "b", "c", "d")))
    path = folder / "learned.yaml"
    path.write_text(RECIPE.format(base=f'"{base}"', reward=reward), encoding="utf-8")
    return load(path, list(overrides)).stages["policy"]


@pytest.fixture(autouse=True)
def registered() -> Any:
    with scratch():
        register("learned")(Learned)
        register("same")(Same)
        yield


def test_a_reward_has_a_model_trained_and_reads_it(tmp_path: Path, tiny_model_dir: Path) -> None:
    policy = stage(tmp_path, tiny_model_dir)
    policy.run(a_run(tmp_path / "run"))
    made = tmp_path / "run" / "out" / "auxiliary" / "guess"
    assert {"head.safetensors", "adapter_model.safetensors"} <= weights(made).keys()
    rows = log(tmp_path / "run")
    assert all(row["guess_grad_norm"] > 0 and row["guess/far"] > 0 for row in rows)
    assert rows[0]["loss"] == pytest.approx(rows[0]["policy_loss"] + rows[0]["guess/far"], abs=0.5)


def test_micro_batches_do_not_change_it(tmp_path: Path, tiny_model_dir: Path) -> None:
    numbers = []
    for size in (4, 1):
        policy = stage(tmp_path, tiny_model_dir, "learned", f"stages.policy.train.micro_batch_size={size}")
        policy.run(a_run(tmp_path / str(size)))
        numbers.append(log(tmp_path / str(size)))
    for one, two in zip(*numbers, strict=True):
        assert one["guess_grad_norm"] == pytest.approx(two["guess_grad_norm"], rel=1e-3)


def test_all_weights_of_another_start_are_trained_beside_its_frozen_copy(tmp_path: Path, tiny_model_dir: Path) -> None:
    start = f"{{name: learned, guess: {{start: {{base: '{tiny_model_dir}'}}, lr: 1e-3}}}}"
    policy = stage(tmp_path, tiny_model_dir, start)
    assert policy.makes_model().auxiliaries["guess"].head == "scalar"
    policy.run(a_run(tmp_path / "run"))
    assert "model.safetensors" in weights(tmp_path / "run" / "out" / "auxiliary" / "guess")
    refused = start.replace("lr: 1e-3", "lr: 1e-3").replace("'}", "', dtype: bfloat16}")
    with pytest.raises(Problems, match=r"reward\.guess\.start\.dtype bfloat16 without lora"):
        stage(tmp_path, tiny_model_dir, refused)


@pytest.mark.parametrize("name", ["actor", "critic", "Guess", "a/b"])
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    with pytest.raises(Problems, match="wants a name that no other model has"):
        stage(tmp_path, tiny_model_dir, f"{{name: learned, named: {name}}}")


def test_a_stage_that_trains_nothing_refuses_it() -> None:
    from fgrl.kinds import check_scorer

    with pytest.raises(UnknownNeed, match='the reward learned has a model "guess" trained'):
        check_scorer(Same(reward=Learned()), field="reward")
    check_scorer(Learned(), field="reward", trains=True)


def test_what_its_loss_returns_is_checked(tmp_path: Path, tiny_model_dir: Path) -> None:
    policy = stage(tmp_path, tiny_model_dir, "{name: learned, broken: true}")
    with pytest.raises((UserCodeError, TypeError), match=r"returned a Tensor \[\d\] as the loss"):
        policy.run(a_run(tmp_path / "run"))


def test_a_gradient_that_is_not_finite_names_the_model(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = stage(tmp_path, tiny_model_dir, "learned")
    norms = iter([1.0, float("inf")])
    monkeypatch.setattr("fgrl.training.strategies.clip", lambda settings, parameters: next(norms))
    with pytest.raises(Stopped, match="gradient of the guess is not finite"):
        policy.run(a_run(tmp_path / "run"))


def test_inspect_reads_it_before_training(tmp_path: Path, tiny_model_dir: Path) -> None:
    policy = stage(tmp_path, tiny_model_dir, "learned")
    assert len(list(policy.inspect(a_run(tmp_path / "run"), 2))) == 2
