"""Settings, strategies, clipping, whole weights, and what is said when a machine cannot do what a recipe asks."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import warnings
import weakref
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_recipe
import torch
from patience import HUNG
from pipeline_helpers import environment, fgrl
from shard_folders import write_shards
from tiny_recipe import a_run, alone
from torch import nn
from training_helpers import row, tiny

from fgrl import models
from fgrl.base.errors import DataError, Unavailable
from fgrl.components.algorithms.sft import SFT
from fgrl.experiments import recipe as recipes
from fgrl.registry import Problems
from fgrl.training import checkpoints, weights
from fgrl.training import trainer as trainers
from fgrl.training.offline import OfflineRounds
from fgrl.training.trainer import OfflineSettings, TrainSettings, schedule
from fgrl.training.training_module import TrainingModule

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    return tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)


def settings(**more: Any) -> TrainSettings:
    return TrainSettings(**{"lr": 1e-3, "batch_size": 4, "accelerator": "cpu"} | more)


# -- schedule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
def test_the_schedule_rises_to_the_peak_and_falls_to_its_floor(kind: str) -> None:
    factor = schedule(settings(schedule=kind, warmup=0.1, min_lr_ratio=0.2), 100)
    values = [factor(step) for step in range(100)]
    assert values[:10] == pytest.approx([(i + 1) / 11 for i in range(10)])
    assert values[10] == 1.0
    assert all(a >= b for a, b in pairwise(values[10:]))
    assert factor(100) == pytest.approx(1.0 if kind == "constant" else 0.2)
    assert factor(1000) == factor(100)


def test_without_warmup_the_first_step_is_at_the_peak() -> None:
    assert schedule(settings(warmup=0.0), 5)(0) == 1.0


# -- strategies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deepspeed_stage_2", "deepspeed_stage_3"])
def test_a_missing_deepspeed_is_told_with_the_remedy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "find_spec", lambda module: None)
    with pytest.raises(Unavailable, match=r"needs DeepSpeed: pip install 'fgrl\[deepspeed\]'"):
        settings(strategy=name).check_machine()


@pytest.mark.parametrize("name", ["fsdp", "deepspeed_stage_3"])
def test_strategies_for_gpus_are_refused_without_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "find_spec", lambda module: module)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Unavailable, match=f"{name} is meant for GPUs, and none is visible.*ddp.*accelerator: cpu"):
        settings(strategy=name, accelerator="auto").check_machine()
    settings(strategy=name, accelerator="cpu").check_machine()


@pytest.mark.parametrize("name", ["auto", "ddp"])
def test_other_strategies_run_anywhere(name: str) -> None:
    settings(strategy=name).check_machine()


def test_nothing_is_computed_before_the_machine_is_known_to_be_able(recipe: Path, tmp_path: Path) -> None:
    """Exit code 2, one clear line, no traceback, within seconds: before the model is loaded."""
    strategies = ("stages.reward_model.train.strategy=fsdp", "stages.reward_model.train.accelerator=gpu")
    rest = ("stages.calibrate=null", "stages.policy=null", "stages.evaluate=null")
    done = fgrl("run", recipe, "--runs", tmp_path / "runs", *strategies, *rest, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "train.accelerator is gpu, and no GPU is visible here" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists(), "a failed start leaves nothing behind"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["stages.policy.train.strategy=deepspeed_stage_3"], "leaves each device with a part of the weights"),
        (["stages.policy.train.strategy=fsdp"], r"the engine hf \(rollout.engine\) needs all of them: use ddp .*, or fsdp with an engine"),
        (["stages.policy.train.strategy=deepspeed_stage_3", "stages.policy.rollout.engine={name: vllm}"], r"the engine vllm \(rollout.engine\)"),
        (["stages.policy.train.devices=7"], "batch_size 6 is smaller than devices 7"),
        (["stages.policy.train.devices=4", "stages.policy.rollout.per_prompt=4"], "fewer than devices 4"),
        (["stages.reward_model.train.devices=8"], "batch_size 7 is smaller than devices 8"),
        (["stages.reward_model.model={base: b, dtype: bfloat16, lora: null}"], "dtype bfloat16 without lora.*dtype float32.*deepspeed"),
        (["stages.policy.model={base: b, dtype: bfloat16, lora: null}"], "rounds most updates away"),
        (["stages.reward_model.model.quantize=nf4", "stages.reward_model.train.strategy=fsdp"], "4-bit weights are not shared"),
        (["stages.policy.critic={base: b, dtype: bfloat16}"], "critic.dtype bfloat16 without lora"),
        (["stages.policy.model.lora=null", "stages.policy.train.precision=bf16-true"], "converts frozen weights only"),
    ],
)  # fmt: skip
def test_recipes_that_cannot_work_are_refused(recipe: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(Problems, match=message):
        recipes.load(recipe, overrides)


READER = '''
from fgrl import Reward, register

@register("reads_the_policy")
class Reader(Reward):
    """Makes passes of its own."""

    def needs(self):
        return frozenset({"policy"})

    def score(self, rollout):
        raise NotImplementedError
'''


def test_shards_are_refused_where_processes_would_read_them_unequally_often(
    tmp_path: Path, tiny_model_dir: Path
) -> None:
    recipe = tiny_recipe.write(tmp_path, tiny_model_dir)
    (tmp_path / "reader.py").write_text(READER)
    recipe.write_text(recipe.read_text().replace("seed: 3\n", "seed: 3\nimports: [reader.py]\n"))
    reader = ("stages.policy.reward={name: reads_the_policy}", "stages.policy.rollout.engine={name: vllm}")
    with pytest.raises(Problems, match="makes passes of its own through the policy"):
        recipes.load(recipe, [*reader, "stages.policy.train.strategy=fsdp"])
    recipes.load(recipe, [*reader, "stages.policy.train.strategy=ddp"])


def test_full_fine_tuning_in_bfloat16_is_for_deepspeed(recipe: Path) -> None:
    narrow = ["stages.reward_model.model={base: b, dtype: bfloat16, lora: null}"]
    engine = ["stages.reward_model.train.strategy=deepspeed_stage_2", "stages.reward_model.train.precision=bf16-mixed"]
    assert recipes.load(recipe, [*narrow, *engine])


@pytest.mark.parametrize(("lora", "refused"), [(None, True), ({"r": 4}, False)])
def test_weights_stored_in_bfloat16_are_not_trained_as_they_are(
    lora: Any, refused: bool, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """The type that a trained checkpoint is stored in is known when it is loaded."""
    model = tiny(tiny_model_dir, trainable=True, dtype="bfloat16", lora=lora)
    given = OfflineSettings(lr=1e-3, batch_size=1, accelerator="cpu")
    rounds = OfflineRounds(model, SFT(), [[row(4)]], given, a_run(tmp_path))
    with pytest.raises(DataError, match=r"stored in torch.bfloat16.*dtype: float32") if refused else nullcontext():
        TrainingModule(rounds)


def test_frozen_models_of_one_time_passes_are_freed_before_training(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[Any] = []
    alive: list[Any] = []
    load = models.load

    def watched(*args: Any, **options: Any) -> Any:
        model = load(*args, **options)
        if not options.get("trainable"):
            frozen.append(weakref.ref(model))
        return model

    def fit(self: Any, checkpoint_every: int) -> None:
        gc.collect()
        alive.extend(model for reference in frozen if (model := reference()) is not None)
        raise KeyboardInterrupt("seen")

    monkeypatch.setattr(models, "load", watched)
    monkeypatch.setattr(TrainingModule, "fit", fit)
    with pytest.raises(KeyboardInterrupt, match="seen"):
        alone(recipe, "reward_model").run(a_run(tmp_path / "run"))
    assert frozen, "the entropies come from a frozen model"
    assert not alive


# -- whole weights -----------------------------------------------------------------------------------------------------


def trained(folder: Path, strategy: str) -> Any:
    """A training of which only the checkpoint is left."""
    return SimpleNamespace(settings=settings(strategy=strategy), run=a_run(folder))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.free = nn.Linear(3, 2)


@pytest.mark.parametrize("name", ["auto", "ddp"])
def test_weights_are_whole_without_sharding(name: str, tmp_path: Path) -> None:
    assert weights.full_state(trained(tmp_path, name)) is None


def test_weights_of_fsdp_come_from_its_checkpoint(tmp_path: Path) -> None:
    wanted = {f"free.{name}": torch.randn_like(value) for name, value in Small().free.state_dict().items()}
    write_shards(tmp_path, {f"model.{name}": value for name, value in wanted.items()})
    state = weights.full_state(trained(tmp_path, "fsdp"))
    assert state is not None
    model = weights.fill(Small(), state)
    assert torch.equal(model.free.weight, wanted["free.weight"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("free.bias"), "free.bias: missing"),
        (lambda state: state.update({"free.weight": torch.zeros(3)}), r"free.weight: \(3,\) instead of \(2, 3\)"),
        (lambda state: state.update({"other": torch.zeros(3)}), "other: not in the model"),
    ],
)
def test_weights_that_are_not_whole_are_never_saved(change: Any, message: str) -> None:
    state = {f"free.{name}": value for name, value in Small().free.state_dict().items()}
    change(state)
    with pytest.raises(RuntimeError, match=f"incomplete, nothing was saved: {message}"):
        weights.fill(Small(), state)


def test_without_a_checkpoint_there_is_nothing_to_gather(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no process has the complete weights of deepspeed_stage_3"):
        weights.full_state(trained(tmp_path, "deepspeed_stage_3"))


DEEPSPEED = """
import sys, torch, deepspeed
from torch import nn
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.free = nn.Linear(3, 2)
class Wrapped(nn.Module):  # as Lightning does: the module that trains has the model under `model`
    def __init__(self):
        super().__init__()
        self.model = Small()
    def forward(self, x):
        return self.model.free(self.model.frozen(x)).square().sum()
folder, stage = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
module = Wrapped()
config = {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
          "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=0.01)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # or it compiles C++ for a minute
engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config, dist_init_required=True)
for _ in range(3):
    engine.backward(engine(torch.ones(1, 3, dtype=torch.bfloat16)))
    engine.step()
engine.save_checkpoint(folder, tag="checkpoint", exclude_frozen_parameters=True)
if stage == 3:
    with deepspeed.zero.GatheredParameters(list(module.parameters())):
        told = {name: value.detach().clone() for name, value in module.named_parameters()}
else:
    told = {name: value.detach().clone() for name, value in module.named_parameters()}
torch.save(told, folder + ".told")
"""


@pytest.mark.parametrize("stage", [2, 3])
def test_weights_of_deepspeed_are_its_float32_ones(
    stage: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real engine, three steps in bfloat16 on the CPU; its checkpoint gives the model in float32."""
    pytest.importorskip("deepspeed", reason="needs deepspeed: pip install 'fgrl[deepspeed]'")
    made = tmp_path / "last.ckpt"
    launcher = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29567"}
    done = subprocess.run(
        [sys.executable, "-c", DEEPSPEED, str(made), str(stage)],
        env=environment() | launcher | {"DS_ACCELERATOR": "cpu", "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False, timeout=HUNG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    capsys.readouterr()
    state = weights.full_state(trained(tmp_path, f"deepspeed_stage_{stage}"))
    assert state is not None
    assert capsys.readouterr() == ("", "")
    assert all(value.dtype == torch.float32 for value in state.values())
    model = weights.fill(Small(), state)
    told = torch.load(f"{made}.told")
    for name in ("free.weight", "free.bias"):
        value = model.get_parameter(name)
        assert torch.equal(value.bfloat16(), told[f"model.{name}"].bfloat16())
        assert not torch.equal(value, value.bfloat16().float()), "rounded: these are not the optimizer's weights"


def test_a_flipped_bit_of_a_checkpoint_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save({"weights": torch.arange(8.0), "round": 3}, path)
    checkpoints.seal(path)
    whole, content = path.read_bytes(), repr(torch.load(path, weights_only=True))
    assert checkpoints.damage(path) == ""
    noticed = 0
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        if checkpoints.damage(path):
            noticed += 1
        else:
            assert repr(torch.load(path, weights_only=True)) == content, place
    assert noticed > len(whole) / 3 / 4  # the rest is padding


@pytest.mark.parametrize("size", [0, 10, 0.5, 0.99])
def test_a_cut_checkpoint_is_removed_with_a_message(size: float, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    said: list[str] = []
    run.say = said.append  # type: ignore[method-assign]
    for name in ("last.ckpt", "replaced.ckpt"):
        torch.save({"state_dict": {"weights": torch.arange(800.0)}, "loops": {}, "round": 1}, tmp_path / name)
    whole = (tmp_path / "last.ckpt").read_bytes()
    (tmp_path / "last.ckpt").write_bytes(whole[: int(size if size > 1 else size * len(whole))])
    checkpoints.remove_damaged(run)
    assert checkpoints.last(tmp_path) == tmp_path / "replaced.ckpt"
    (message,) = said
    assert message.startswith("last.ckpt is damaged (last.ckpt cannot be read: ")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "a folder, and this training writes a file"),
        ({"state_dict": {}, "loops": {}, "round": Path()}, "it cannot be loaded without executing code"),
        ([1, 2], "it has no state_dict"),
        ({"state_dict": {}}, "it has no loops"),
    ],
)
def test_what_is_no_checkpoint_is_removed_with_a_message(content: Any, says: str, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    said: list[str] = []
    run.say = said.append  # type: ignore[method-assign]
    if content is None:
        (tmp_path / "last.ckpt" / "inside").mkdir(parents=True)
    else:
        torch.save(content, tmp_path / "last.ckpt")
    checkpoints.remove_damaged(run)
    assert checkpoints.last(tmp_path) is None
    (message,) = said
    assert says in message


# -- what is said ------------------------------------------------------------------------------------------------------


def test_lightning_does_not_chatter(
    recipe: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither at the terminal nor as warnings; real warnings still come through."""
    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.INFO):
        warnings.simplefilter("always")
        alone(recipe, "policy", "stages.policy.train.iterations=2").run(a_run(tmp_path / "run"))
        alone(recipe, "policy", "stages.policy.train.iterations=2").run(a_run(tmp_path / "run"))
        warnings.warn("a warning of its own", stacklevel=1)
    assert [str(one.message) for one in caught] == ["a warning of its own"]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("lightning")] == []
    said = capfd.readouterr()
    assert said.out == ""
    assert [line for line in said.err.splitlines() if "Writing model shards" not in line and line] == []


def test_an_aborted_training_is_an_interrupt(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C: Lightning would leave the interpreter with exit code 1."""

    def training_step(self: Any, batch: Any, index: int) -> Any:
        raise KeyboardInterrupt("aborted")

    monkeypatch.setattr(TrainingModule, "training_step", training_step)
    with pytest.raises(KeyboardInterrupt, match="aborted"):
        alone(recipe, "policy").run(a_run(tmp_path / "run"))


def test_lightning_leaves_sigterm_to_us(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here to a handler that lets the round be finished."""
    import signal

    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    whole = TrainingModule.training_step

    def training_step(self: Any, batch: Any, index: int) -> Any:
        if not asked:
            os.kill(os.getpid(), signal.SIGTERM)
        return whole(self, batch, index)

    monkeypatch.setattr(TrainingModule, "training_step", training_step)
    try:
        with pytest.raises(KeyboardInterrupt):
            alone(recipe, "policy").run(a_run(tmp_path / "run", interrupted=lambda: bool(asked)))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [signal.SIGTERM]
    assert torch.load(tmp_path / "run" / "last.ckpt", weights_only=False)["round"] == 1


def test_checkpoints_in_folders_are_replaced_in_two_moves(tmp_path: Path) -> None:
    """A kill between them leaves the old one, under another name, and it is found."""
    (tmp_path / "replaced.ckpt").mkdir()
    assert checkpoints.last(tmp_path) == tmp_path / "replaced.ckpt"
    (tmp_path / "last.ckpt").mkdir()
    assert checkpoints.last(tmp_path) == tmp_path / "last.ckpt"


def test_a_folder_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    from fgrl.training import callbacks

    def save_checkpoint(path: Path) -> None:
        path.mkdir()
        (path / "latest").write_text("new")

    trainer: Any = SimpleNamespace(
        is_global_zero=True, strategy=SimpleNamespace(barrier=lambda name: None), save_checkpoint=save_checkpoint
    )
    for name in ("last", "replaced", "writing"):
        (tmp_path / f"{name}.ckpt").mkdir()
        (tmp_path / f"{name}.ckpt" / "old").write_text(name)
    callbacks.save(trainer, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]
    assert [path.name for path in (tmp_path / "last.ckpt").iterdir()] == ["latest"]


def test_settings_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="batch_size 2 is smaller than devices 3"):
        OfflineSettings(lr=1e-3, batch_size=2, devices=3)
