"""What is the same under every strategy and precision: gradients, clipping, steps, columns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from patience import HUNG
from pipeline_helpers import HERE, ROOT, environment
from pydantic import ValidationError
from torch import nn
from training_helpers import a_run, row, tiny

from fgrl.components.algorithms.dpo import DPO
from fgrl.components.algorithms.sft import SFT
from fgrl.experiments.pipeline.log import read_log
from fgrl.training import strategies, weights
from fgrl.training.offline import OfflineRounds
from fgrl.training.trainer import OfflineSettings, TrainSettings
from fgrl.training.training_module import TrainingModule
from fgrl.types import Batch, per_response

pytestmark = pytest.mark.usefixtures("warm")

GRID = ROOT / "benchmarks" / "strategies.py"
STRATEGIES = ("fsdp", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3")


def settings(**more: Any) -> TrainSettings:
    return TrainSettings(**{"lr": 1e-3, "batch_size": 4, "accelerator": "cpu"} | more)


def python(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """A process of its own: a process group cannot be left again."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=HUNG,
    )


# -- the whole training ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid() -> list[dict[str, Any]]:
    """A slice of the grid: two processes, in 3 micro-batches on each; steps of 8 and of 3 units, and of 6 and 4 responses."""
    pytest.importorskip("deepspeed", reason="needs deepspeed: pip install 'fgrl[deepspeed]'")
    done = python(GRID, "--strategies", *STRATEGIES, "--processes", 2, "--pieces", 3, "--json")
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("algorithm", ["bradley_terry", "dpo", "sft", "ppo", "grpo", "rtt_grpo"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_losses_gradients_and_steps_are_those_of_one_process(
    strategy: str, algorithm: str, grid: list[dict[str, Any]]
) -> None:
    online = algorithm in ("ppo", "grpo", "rtt_grpo")
    mine = [case for case in grid if (case["strategy"], case["algorithm"]) == (strategy, algorithm)]
    assert len(mine) == (0 if online and strategy == "deepspeed_stage_3" else 1), "sampling needs all weights"
    for case in mine:
        check(case)


def check(case: dict[str, Any]) -> None:
    assert max(case["loss"], case["norm"], case["gradient"]) <= 1e-5
    assert max(case["logged"], case["step"], case["clipped step"]) <= 1e-3
    assert case["sent"] == 0


def test_shards_of_adapters_and_of_tied_and_checkpointed_weights_are_those_of_one_process() -> None:
    """Processes have unequally many responses, so that one of them makes more passes."""
    models = ("lora", "tied", "checkpointing")
    done = python(
        GRID,
        "--strategies",
        "fsdp",
        "--algorithms",
        "ppo",
        "--processes",
        2,
        "--pieces",
        3,
        "--models",
        *models,
        "--json",
    )
    assert done.returncode in (0, 1), done.stderr[-3000:]
    cases = json.loads(done.stdout.splitlines()[-1])
    assert [case["model"] for case in cases] == [*models]
    for case in cases:
        check(case)


# -- precision ---------------------------------------------------------------------------------------------------------


class Weighted(SFT):
    """SFT that keeps the column "weight" as its loss sees it."""

    columns: ClassVar = {"weight": per_response()}
    _seen: list[float] = []

    def loss(self, model: Any, batch: Batch) -> Any:
        self._seen += batch.columns["weight"].tolist()
        return super().loss(model, batch)


def trained(model_dir: Path, folder: Path, interrupted: bool = False, **train: Any) -> TrainingModule:
    """Two steps of SFT on four rows with the column "weight"; `module.rounds.algorithm._seen` is what the loss saw of it.

    interrupted: stop after the first step. A second call with the same folder goes on from there.
    """
    model = tiny(model_dir, trainable=True, lora={"r": 4, "alpha": 8})
    units = [[row(4 + i, seed=i)] for i in range(4)]
    for i, (unit,) in enumerate(units):
        unit["columns"]["weight"] = torch.tensor(-523.7 - i)
    given = OfflineSettings(lr=1e-3, batch_size=2, micro_batch_size=1, checkpoint_every=1, accelerator="cpu", **train)
    run = a_run(folder, interrupted=lambda: interrupted)
    module = TrainingModule(OfflineRounds(model, Weighted(), units, given, run))
    module.fit(checkpoint_every=1)
    return module


def check_training(model_dir: Path, folder: Path, **train: Any) -> None:
    module = trained(model_dir, folder / "undisturbed", **train)
    assert sorted(module.rounds.algorithm._seen) == sorted(torch.tensor([-523.7 - i for i in range(4)]).tolist())
    if train["strategy"].startswith("deepspeed"):
        zero = module.trainer.strategy.model.optimizer
        assert zero.gradient_accumulation_dtype == torch.float32, "gradients of micro-batches are added up in float32"
    else:
        types = {value.dtype for value in module.model.parameters() if value.requires_grad}
        assert types == {torch.float32}, "adapters and heads stay float32"
    trained(model_dir, folder / "interrupted", interrupted=True, **train)
    again = trained(model_dir, folder / "interrupted", **train)
    ends = [weights.full_state(each) or dict(each.model.named_parameters()) for each in (module, again)]
    assert len(again.rounds.algorithm._seen) == 2, "it went on after the first step"
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def check_start(model_dir: Path, folder: Path, **train: Any) -> None:
    """DPO of all weights starts with log-ratios of exactly 0."""
    units = [[row(4 + i, seed=i), row(5 + i, seed=100 + i)] for i in range(4)]
    model, algorithm, run = tiny(model_dir, trainable=True), DPO(), a_run(folder)
    algorithm.prepare([one for unit in units for one in unit], run, model)
    given = OfflineSettings(lr=1e-3, batch_size=4, micro_batch_size=2, accelerator="cpu", **train)
    module = TrainingModule(OfflineRounds(model, algorithm, units, given, run))
    module.fit(checkpoint_every=1)
    (first,) = read_log(folder / "log.jsonl")
    assert (first["log_ratio_chosen"], first["log_ratio_rejected"]) == (0.0, 0.0)
    assert first["grad_norm"] > 0


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_columns_arrive_as_they_are_and_a_resumed_training_ends_the_same(
    precision: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    check_training(tiny_model_dir, tmp_path, strategy="auto", precision=precision)


def test_columns_arrive_as_they_are_and_a_resumed_training_ends_the_same_under_every_strategy(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    pytest.importorskip("deepspeed", reason="needs deepspeed: pip install 'fgrl[deepspeed]'")
    code = (
        f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(Path(__file__).parent)!r}]\n"
        "from pathlib import Path; from test_strategies import check_start, check_training\n"
        "for strategy in ('deepspeed_stage_2', 'deepspeed_stage_3', 'fsdp'):\n"
        "    for precision in ('bf16-mixed', 'bf16-true'):\n"
        f"        folder = Path({str(tmp_path)!r}) / strategy / precision\n"
        f"        check_training(Path({str(tiny_model_dir)!r}), folder, strategy=strategy, precision=precision)\n"
        "        if strategy != 'fsdp' or precision != 'bf16-true':\n"
        f"            check_start(Path({str(tiny_model_dir)!r}), folder / 'dpo', strategy=strategy, precision=precision)\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr[-3000:]


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_lightning_and_deepspeed_take_the_configuration(stage: int) -> None:
    pytest.importorskip("deepspeed", reason="needs deepspeed: pip install 'fgrl[deepspeed]'")
    from deepspeed.runtime.config import DeepSpeedConfig
    from lightning.pytorch.strategies import DeepSpeedStrategy

    strategy = strategies.arguments(settings(strategy=f"deepspeed_stage_{stage}"))["strategy"]
    assert isinstance(strategy, DeepSpeedStrategy)
    assert strategy.exclude_frozen_parameters
    assert strategy.config["zero_allow_untested_optimizer"], "AdamW of torch is none of DeepSpeed's own"
    # Lightning fills these in, and refuses to when they are there
    assert not {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16"} & set(strategy.config)
    read = DeepSpeedConfig({**strategy.config, "train_micro_batch_size_per_gpu": 1})
    assert read.zero_config.stage == stage
    assert read.grad_accum_dtype == "fp32"


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_zero_1_is_for_float32(precision: str) -> None:
    with pytest.raises(ValidationError, match=r"deepspeed_stage_1 .* use deepspeed_stage_2"):
        settings(strategy="deepspeed_stage_1", precision=precision)


# -- clipping ----------------------------------------------------------------------------------------------------------


class Module(TrainingModule):
    """As little of a `TrainingModule` as clipping needs."""

    def __init__(self, strategy: str, clip_norm: float | None = 1.0) -> None:
        nn.Module.__init__(self)
        self.settings = settings(strategy=strategy, clip_norm=clip_norm)
        self._step_metrics = {}
        self.model = nn.ModuleDict({"actor": nn.Linear(2, 2), "critic": nn.Linear(2, 2)})
        for parameter in self.model.parameters():
            parameter.grad = torch.full_like(parameter, 3.0)
        self.model["critic"].weight.grad.mul_(0.01)
        self.model["critic"].bias.grad.mul_(0.01)
        groups = [{"params": list(self.model[name].parameters()), "name": name} for name in ("actor", "critic")]
        self.rounds = SimpleNamespace(parameter_groups=lambda: groups, reports="step")

    @property
    def trainer(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(model=SimpleNamespace(is_gradient_accumulation_boundary=lambda: True), global_step=0)

    def norm(self, name: str) -> float:
        return float(torch.cat([p.grad.flatten() for p in self.model[name].parameters() if p.grad is not None]).norm())


def test_actor_and_critic_are_clipped_each_for_itself() -> None:
    module = Module("auto")
    before = {name: module.norm(name) for name in ("actor", "critic")}
    module.configure_gradient_clipping(None)
    assert module._step_metrics == pytest.approx({"grad_norm": before["actor"], "critic_grad_norm": before["critic"]})
    assert module.norm("actor") == pytest.approx(1.0, rel=1e-4)
    assert module.norm("critic") == pytest.approx(before["critic"]), "a loud actor must not silence the critic"


def test_no_limit_measures_only() -> None:
    module = Module("auto", clip_norm=None)
    before = module.norm("actor")
    module.configure_gradient_clipping(None)
    assert module.norm("actor") == before
    assert module._step_metrics["grad_norm"] == pytest.approx(before)


def test_zero_3_clips_by_itself() -> None:
    module = Module("deepspeed_stage_3")
    before = module.norm("actor")
    module.configure_gradient_clipping(None)
    assert module.norm("actor") == before
