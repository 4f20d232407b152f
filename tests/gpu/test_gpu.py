"""On a GPU: the numbers of a CPU, trainings that start where they must, and resumes. `make gpu` runs them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from crashes import crash_around_saving, crashing
from model_helpers import more_padding, stir, tokens
from safetensors.torch import load_file
from tiny_recipe import a_run, alone
from training_helpers import row, tiny

from fgrl.components.algorithms.dpo import DPO
from fgrl.experiments.pipeline.log import read_log
from fgrl.kinds import Engine
from fgrl.kinds.specs import Sampling
from fgrl.registry import build
from fgrl.rollouts import pad, sample
from fgrl.training.offline import OfflineRounds
from fgrl.training.trainer import OfflineSettings
from fgrl.training.training_module import TrainingModule
from fgrl.types import Prompt

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

LORA = {"r": 4, "alpha": 8}
STAGES: dict[str, tuple[str, list[str]]] = {
    "policy": ("policy", []),
    "policy, all weights": ("policy", ["stages.policy.model.lora=null"]),
    "policy, shared prompts": ("policy", [
        "stages.policy.algorithm={name: grpo, kl_coef: 0.05}", "stages.policy.rollout.per_prompt=3",
        "stages.policy.train.batch_size=12",
    ]),
    "reward model": ("reward_model", []),
}  # fmt: skip


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    return tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)


def trained(recipe: Path, folder: Path, case: str, *more: str) -> list[dict[str, Any]]:
    """Run a stage on the GPU. Return its log."""
    stage, overrides = STAGES[case]
    on_gpu = f"stages.{stage}.train.accelerator=gpu"
    alone(recipe, stage, on_gpu, *overrides, *(one.format(stage) for one in more)).run(a_run(folder))
    return read_log(folder / "log.jsonl")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{file.relative_to(folder)} {name}": tensor
        for file in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("padding", [0, 7])
def test_scores_and_gradients_are_those_of_a_cpu(dtype: str, padding: int, tiny_model_dir: Path) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        model = tiny(tiny_model_dir, trainable=True, lora=LORA, dtype=dtype)
        stir(model)
        scores = model.to(device).score(more_padding(tokens(), padding, 3, pad_id=9).to(device), entropy=True)
        (scores.logp.sum() + scores.entropy.sum()).backward()
        gradients = [one.grad.float().cpu() for one in model.parameters() if one.requires_grad]
        found[device] = [scores.logp.detach().cpu(), scores.entropy.detach().cpu(), *gradients]
    within = 1e-4 if dtype == "float32" else 0.05
    for there, here in zip(found["cuda"], found["cpu"], strict=True):
        torch.testing.assert_close(there, here, atol=within * max(1.0, float(here.abs().max())), rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_without_padding_score_as_padded_ones(dtype: str, tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir, trainable=True, dtype=dtype).to("cuda")
    found = []
    for budget in (None, 1000):
        model.pack_rows(budget)
        model.zero_grad()
        scores = model.score(tokens().to("cuda"))
        scores.logp.sum().backward()
        found.append([scores.logp.detach(), *(one.grad.float() for one in model.parameters())])
    within = 1e-4 if dtype == "float32" else 0.05
    for padded, packed in zip(*found, strict=True):
        torch.testing.assert_close(packed, padded, atol=within * max(1.0, float(padded.abs().max())), rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_engine_paged_draws_from_the_model_and_keeps_nothing(dtype: str, tiny_model_dir: Path) -> None:
    """In 20 updates; with flash kernels where they are installed and the weights are bfloat16."""
    model = tiny(tiny_model_dir, trainable=True, lora=LORA, dtype=dtype).to("cuda")
    stir(model)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1e-4)
    prompts, held = [[1, 20 + place, 30, 40] for place in range(8)], []
    drawer = build(Engine, "paged").open(model)
    for number in range(20):
        drawer.take(model, number)
        drawn = sample(
            model, drawer, [Prompt(tuple(each)) for each in prompts], Sampling(max_new_tokens=40), seed=number
        )
        batch = pad(prompts, [each.token_ids for each in drawn], model.pad_id, model.eos_ids).to("cuda")
        logp = model.score(batch).logp
        given = torch.tensor([value for each in drawn for value in each.token_logp or ()], device="cuda")
        assert float((given - logp.detach()[batch.mask]).abs().mean()) < (1e-3 if dtype == "float32" else 0.1)
        (-logp.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert model.transformer.config._attn_implementation == "sdpa"
        del batch, logp, given
        held.append(torch.cuda.memory_allocated())
    assert held[-1] <= held[1]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("lora", [LORA, None], ids=["lora", "all weights"])
def test_dpo_starts_at_log_two(precision: str, lora: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    units = [[row(4 + i % 4, seed=i), row(5 + i % 3, seed=100 + i)] for i in range(8)]
    for chosen, rejected in units:
        rejected["prompt"] = chosen["prompt"] = chosen["prompt"] * 9
    run, model, algorithm = a_run(tmp_path / "run"), tiny(tiny_model_dir, trainable=True, lora=lora), DPO()
    model.to(run.device)
    algorithm.prepare([one for unit in units for one in unit], run, model)
    given = OfflineSettings(
        lr=1e-3, batch_size=8, micro_batch_size=3, precision=precision, max_steps=1, accelerator="gpu"
    )
    TrainingModule(OfflineRounds(model, algorithm, units, given, run)).fit(checkpoint_every=1)
    (first,) = read_log(run.dir / "log.jsonl")
    assert first["log_ratio_chosen"] == first["log_ratio_rejected"] == 0
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("case", STAGES)
def test_a_training_is_finite_and_starts_where_it_must(case: str, precision: str, recipe: Path, tmp_path: Path) -> None:
    rows = trained(recipe, tmp_path / "run", case, f"stages.{{}}.train.precision={precision}")
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert all(bool(one.isfinite().all()) for one in weights(tmp_path / "run" / "out").values())
    if case == "policy, shared prompts":  # one step an iteration: the policy is the one that drew
        assert all(row["max_log_ratio"] < (1e-4 if precision == "32-true" else 0.1) for row in rows)


@pytest.mark.parametrize("case", STAGES)
def test_a_stopped_training_goes_on(case: str, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same weights, up to the order in which a GPU adds."""
    trained(recipe, tmp_path / "whole", case)
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 1, before=False)):
        trained(recipe, tmp_path / "stopped", case)
    assert (tmp_path / "stopped" / "last.ckpt").exists()
    trained(recipe, tmp_path / "stopped", case)
    whole, resumed = weights(tmp_path / "whole" / "out"), weights(tmp_path / "stopped" / "out")
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        torch.testing.assert_close(resumed[name], tensor, atol=1e-3, rtol=1e-3, msg=name)


def test_two_runs_draw_and_learn_the_same(recipe: Path, tmp_path: Path) -> None:
    first, second = (trained(recipe, tmp_path / name, "policy") for name in ("first", "second"))
    assert [row["tokens"] for row in first] == [row["tokens"] for row in second]
    for row_, other in zip(first, second, strict=True):
        assert row_["loss"] == pytest.approx(other["loss"], rel=1e-3, abs=1e-4)
