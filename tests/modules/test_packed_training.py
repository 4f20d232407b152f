"""`micro_batch_tokens`: the losses and gradients of padded micro-batches, in fewer tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from test_online import FakeReward, by_ids, module_of
from test_strategies import GRID, python
from training_helpers import a_run, row, tiny

from fgrl import rollouts
from fgrl.components.algorithms.bradley_terry import BradleyTerry
from fgrl.components.algorithms.dpo import DPO
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.ppo import PPO
from fgrl.components.algorithms.rtt_grpo import RTTGRPO
from fgrl.components.algorithms.sft import SFT
from fgrl.components.segmenters.ngram import NGram
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.stages import sizes
from fgrl.training.offline import OfflineRounds
from fgrl.training.trainer import OfflineSettings, TrainSettings
from fgrl.training.training_module import TrainingModule
from fgrl.types import Rewards, Rollout

pytestmark = pytest.mark.usefixtures("warm")

LORA = {"r": 4, "alpha": 8, "dropout": 0.0}
NAN = float("nan")
BUDGET = 60
"""Tokens of a micro-batch: some rows of these tests, and not all of a step."""


class Watched(TrainingModule):
    """Keeps the gradient of each optimizer step, and the number and the tokens of its passes."""

    def __init__(self, rounds: Any) -> None:
        super().__init__(rounds)
        self.gradients: list[torch.Tensor] = []
        self.passes: list[int] = []

    def training_step(self, batch: Any, index: int) -> Any:
        self.passes.append(int(batch.mask.sum() + batch.prompt_mask.sum()))
        return super().training_step(batch, index)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        super().on_before_optimizer_step(optimizer)
        trained = [value.grad for value in self.model.parameters() if value.grad is not None]
        self.gradients.append(torch.cat([value.flatten() for value in trained]))


class ByCriteria(FakeReward):
    """Gives two criteria a number for each token, too."""

    def score(self, rollout: Rollout) -> Rewards:
        rewards = super().score(rollout)
        relevances = torch.stack([(rollout.response_ids * step).sin() for step in (1.0, 2.0)], dim=1)
        rewards.criterion = relevances.masked_fill(~rollout.mask[:, None], NAN)
        return rewards


def assert_same(one: Watched, other: Watched) -> None:
    for each in (one, other):
        each.fit(checkpoint_every=1)
    assert len(one.gradients) == len(other.gradients) > 0
    for padded, packed in zip(one.gradients, other.gradients, strict=True):
        assert float(padded.norm()) > 0
        assert float((padded - packed).norm()) <= 1e-5 * float(padded.norm())
    logs = [read_log(each.run.dir / "log.jsonl") for each in (one, other)]
    losses = [[row["loss"] for row in log] for log in logs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5, abs=1e-6)


OFFLINE = {
    "sft": SFT(),
    "dpo": DPO(reference_pass="each_step"),
    "dpo, the reference once": DPO(),
    "bradley_terry": BradleyTerry(segmenter=NGram(n=3)),
}


@pytest.mark.parametrize("name", OFFLINE)
@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "lora"])
def test_losses_and_gradients_on_fixed_data(name: str, lora: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    def module(folder: Path, **train: Any) -> Watched:
        algorithm = OFFLINE[name].model_copy(deep=True)
        each = 1 if name == "sft" else 2
        units = [[row(3 + (7 * i + 5 * k) % 17, seed=i, prompt=2 + i) for k in range(each)] for i in range(11)]
        for unit in units:
            unit[-1]["prompt"] = unit[0]["prompt"]
        model, run = tiny(tiny_model_dir, head=algorithm.head, trainable=True, lora=lora), a_run(folder)
        algorithm.prepare([one for unit in units for one in unit], run, model)
        settings = {"lr": 1e-30, "batch_size": 8, "micro_batch_size": 3, "accelerator": "cpu", "clip_norm": None}
        return Watched(OfflineRounds(model, algorithm, units, OfflineSettings(**settings | train), run))

    padded, packed = module(tmp_path / "padded"), module(tmp_path / "packed", micro_batch_tokens=BUDGET)
    assert_same(padded, packed)
    assert packed.model.packed_tokens == BUDGET
    if name == "dpo, the reference once":
        assert packed.passes == padded.passes
        return
    assert max(packed.passes) <= BUDGET
    assert len(packed.passes) == 2 * packed.rounds.micro_batches


ONLINE = {"ppo": PPO(epochs=2, kl_coef=0.05), "grpo": GRPO(kl_coef=0.05), "rtt_grpo": RTTGRPO()}


@pytest.mark.parametrize("name", ONLINE)
@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "lora"])
def test_losses_and_gradients_on_drawn_responses(name: str, lora: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    def module(folder: Path, **train: Any) -> Watched:
        reward = ByCriteria()
        reward._worth = by_ids
        settings = {"batch_size": 6, "micro_batch_size": 2, "clip_norm": None} | train
        made = module_of(
            tiny_model_dir, folder, reward, algorithm=ONLINE[name].model_copy(deep=True), lora=lora, per_iteration=12,
            per_prompt=2, **settings,
        )  # fmt: skip
        return Watched(made.rounds)

    padded, packed = module(tmp_path / "padded"), module(tmp_path / "packed", micro_batch_tokens=BUDGET)
    assert_same(padded, packed)
    assert packed.model.actor.packed_tokens == BUDGET
    assert max(packed.passes) <= BUDGET
    if lora is None and name != "rtt_grpo":
        assert packed.rounds.reference.packed_tokens == BUDGET


def test_frozen_models_read_rows_up_to_the_limit(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = tiny(tiny_model_dir), []
    rows = [row(3 + 5 * i, prompt=2) for i in range(7)]
    tokens, needs = rollouts.pad_rows(rows, model.pad_id, model.eos_ids), frozenset({"old_logp"})
    padded = rollouts.score(model, model, tokens, needs)["old_logp"]
    model.pack_rows(BUDGET)
    monkeypatch.setattr(
        model.trunk, "forward", lambda **given: seen.append(given["input_ids"].numel()) or read(**given)
    )
    read = type(model.trunk).forward.__get__(model.trunk)
    packed = rollouts.score(model, model, tokens, needs, micro_batch_size=1)["old_logp"]
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-5)
    assert sum(seen) == int(tokens.mask.sum() + tokens.prompt_mask.sum())
    assert len(seen) == 3
    assert max(seen) <= BUDGET


def test_two_processes_with_unequal_rows_train_as_one_does() -> None:
    """Steps of 8 and of 3 units; in the second, a process has no row in its last pass."""
    done = python(
        GRID, "--strategies", "ddp", "fsdp", "--algorithms", "sft", "ppo", "--processes", 2, "--pieces", 1,
        "--tokens", 24, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    cases = json.loads(done.stdout.splitlines()[-1])
    found = {(case["strategy"], case["algorithm"]) for case in cases}
    assert found == {("ddp", "sft"), ("ddp", "ppo"), ("fsdp", "sft"), ("fsdp", "ppo")}


def test_deepspeed_is_refused() -> None:
    with pytest.raises(ValidationError, match="the same number of micro-batches in every step"):
        TrainSettings(lr=1e-3, batch_size=8, micro_batch_tokens=100, strategy="deepspeed_stage_2")


@pytest.mark.parametrize(("tokens", "wanted"), [(100, 100), (10, 40)])
def test_a_plan_counts_the_tokens_of_a_micro_batch_or_its_longest_unit(tokens: int, wanted: int) -> None:
    train = TrainSettings(lr=1e-3, batch_size=8, micro_batch_size=4, micro_batch_tokens=tokens)
    shape = sizes.trained(train, 20, 2)
    assert (shape.rows, shape.tokens) == (1, wanted)
    assert sizes.trained(train, 20, 2, unit_by_unit=True).rows == 2
