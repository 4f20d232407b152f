"""Typed settings of training, and the Lightning trainer created from them.

A training is a sequence of rounds (Lightning epochs): an iteration of online training, or some optimizer steps of
offline training. Checkpoints are written between rounds. All random numbers inside a round are seeded by its number, so
a training that was killed resumes after its last checkpoint and ends with the same weights, bit for bit.
"""

from __future__ import annotations

import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from fgrl.base import lazy, native
from fgrl.base.errors import Aborted, Unavailable
from fgrl.kinds import Accelerator, Run
from fgrl.kinds.functions import as_user_error
from fgrl.registry import ByDevice, Settings, Unkeyed

if TYPE_CHECKING:
    import logging

    from lightning.pytorch import LightningModule, Trainer

    from fgrl.training.callbacks import BetweenRounds
else:
    logging = lazy.load("logging")
checkpoints = lazy.load("fgrl.training.checkpoints")
launching = lazy.load("fgrl.training.launching")
lightning = lazy.load("lightning")
torch = lazy.load("torch")

Strategy = Literal["auto", "ddp", "fsdp", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3"]


BUCKET = 200_000_000
"""Number of gradients that DeepSpeed reduces together, in buffers of this size whatever the model's size."""


class TrainSettings(Settings):
    """Optimizer, schedule and hardware of a training stage."""

    lr: float = Field(gt=0, le=1)
    """Peak learning rate (of the actor, in online training)."""
    batch_size: int = Field(ge=1, le=10_000_000)
    """Number of rows (pairs, for preference data) of one optimizer step, over all devices."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(8, ge=1, le=1_000_000)
    """Maximum number of rows (pairs, for preference data) that the model processes at once on one device. It changes
    memory and speed, never the loss. In `finetune`, `dpo` with `reference_pass: once` trains on one pair at a time
    whatever this and `micro_batch_tokens` are, unless `strategy` is fsdp or DeepSpeed.
    """
    micro_batch_tokens: Annotated[int | None, Unkeyed] = Field(None, ge=1, le=100_000_000)
    """Maximum number of tokens of a micro-batch without padding (or one longer row or pair), instead of
    `micro_batch_size` rows. Rows are then read one after another. This is faster if lengths differ, but not if the
    responses to one long prompt share a micro-batch, because the prompt is computed once only with padding. It changes
    memory and speed, never the loss. Models that cannot keep such rows apart are refused, and so are DeepSpeed's
    strategies.
    """
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field([0.9, 0.95], min_length=2, max_length=2)
    """Adam's decay rates."""
    eps: float = Field(1e-8, gt=0, le=1)
    """Adam's epsilon."""
    weight_decay: float = Field(0.0, ge=0, le=10)
    """Decoupled weight decay."""
    clip_norm: float | None = Field(1.0, ge=1e-6, le=1e9)
    """Maximum norm of gradients, to which they are clipped, separately for actor and critic; null switches clipping
    off.
    """
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Course of the learning rate after the warm-up."""
    warmup: float = Field(0.03, ge=0, le=1)
    """Share of the optimizer steps over which the learning rate rises from 0."""
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    """Share of the peak learning rate at which the schedule ends."""
    precision: Annotated[
        Literal["auto", "32-true", "bf16-mixed", "bf16-true"], ByDevice("32-true", "bf16-true", whole="bf16-mixed")
    ] = "32-true"
    """Precision of weights and passes. `32-true`: weights and passes as loaded. `bf16-mixed`: passes compute in
    bfloat16, with the weights as loaded. `bf16-true`: frozen weights become bfloat16; adapters and heads stay float32.
    With DeepSpeed both train bfloat16 copies of float32 weights. `auto`: if the device multiplies bfloat16 natively,
    `bf16-true` with adapters and `bf16-mixed` without; else `32-true`.
    """
    strategy: Strategy = "auto"
    """Lightning's strategy. `deepspeed_stage_1` is for `32-true` only."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of processes on each node, one per device."""
    nodes: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of machines that train together, each with `devices`. For more than one, torchrun starts the processes on
    each (`fgrl launch`).
    """
    wait_limit: Annotated[float, Unkeyed] = Field(14400.0, gt=0)
    """Seconds that a process waits for the others before the run ends, because one of them hangs. It must be longer
    than the longest wait of a healthy run: for the process that draws and scores the longest responses, or for the
    process that asks an endpoint for all.
    """
    accelerator: Annotated[Accelerator, Unkeyed] = "auto"
    """Kind of device, also for frozen models."""
    checkpoint_minutes: Annotated[float | None, Unkeyed] = Field(None, ge=0, le=100_000)
    """Minimum number of minutes between two checkpoints; checkpoints of `checkpoint_every` that come sooner are left
    out. null: 15 if `strategy` shards the weights (fsdp, deepspeed_stage_3), else 0.
    """
    keep_checkpoint: Annotated[bool, Unkeyed] = False
    """True to keep `last.ckpt` (15 bytes per trained parameter) after the training has finished."""

    @model_validator(mode="after")
    def _rows_for_all(self) -> TrainSettings:
        if self.batch_size < self.world:
            raise ValueError(
                f"batch_size {self.batch_size} is smaller than devices {self.world}: a device would have no rows"
            )
        return self

    @model_validator(mode="after")
    def _steps_of_any_length(self) -> TrainSettings:
        if self.micro_batch_tokens is not None and self.deepspeed:
            raise ValueError(
                f"micro_batch_tokens with strategy {self.strategy}: DeepSpeed needs the same number of micro-batches in every step; "
                "set micro_batch_size instead, or use ddp or fsdp"
            )
        return self

    @model_validator(mode="after")
    def _zero_1_in_float32(self) -> TrainSettings:
        if self.strategy == "deepspeed_stage_1" and self.precision != "32-true":
            raise ValueError(
                "deepspeed_stage_1 is for precision 32-true: in bfloat16 DeepSpeed replaces it by an optimizer that clips in "
                "another way; use deepspeed_stage_2"
            )
        return self

    @property
    def world(self) -> int:
        """Return the number of processes that train together."""
        return self.devices * self.nodes

    @property
    def deepspeed(self) -> bool:
        """Return True if DeepSpeed's engine trains."""
        return self.strategy.startswith("deepspeed")

    def units_at_once(self, unit_by_unit: bool) -> int:
        """Return the maximum number of units (rows or pairs) of a micro-batch on one device. unit_by_unit: True if the
        loss reads each unit in a separate pass, so that larger micro-batches would only take more memory.
        """
        # where gradients are reduced after each micro-batch, more of them would cost time
        return 1 if unit_by_unit and not self.sharded and not self.deepspeed else self.micro_batch_size

    def tokens_at_once(self, unit_by_unit: bool) -> int | None:
        """Return `micro_batch_tokens`; None if it has no effect, because the loss reads `unit_by_unit`."""
        return None if unit_by_unit and not self.sharded else self.micro_batch_tokens

    @property
    def sharded(self) -> bool:
        """Return True if each process has only a part of the weights."""
        return self.strategy in ("fsdp", "deepspeed_stage_3")

    @property
    def minutes_between_checkpoints(self) -> float:
        """Return the minimum number of minutes between two checkpoints."""
        default = 15.0 if self.sharded else 0.0
        return default if self.checkpoint_minutes is None else self.checkpoint_minutes

    def check_machine(self) -> None:
        """Raise `Unavailable` if this machine cannot train with `strategy`."""
        name = self.strategy
        if self.accelerator == "gpu" and not native.has_gpu():
            raise Unavailable(
                "train.accelerator is gpu, and no GPU is visible here (`fgrl doctor` lists what there is): set train.accelerator to auto"
            )
        if name in ("auto", "ddp"):
            return
        if self.deepspeed and find_spec("deepspeed") is None:
            raise Unavailable(
                f"train.strategy {name} needs DeepSpeed: pip install 'fgrl[deepspeed]', or set train.strategy to ddp"
            )
        if self.accelerator == "auto" and not native.has_gpu():
            raise Unavailable(
                f"train.strategy {name} is meant for GPUs, and none is visible here: set train.strategy to ddp (which trains float32 "
                f"weights or LoRA adapters), or try {name} out on CPUs with train.accelerator: cpu"
            )

    def warnings(self) -> list[str]:
        """Return warnings about values that are probably mistakes."""
        if self.lr < 0.1:
            return []
        return [f"train.lr: {self.lr:g} is a very large learning rate; 1e-6 to 1e-3 are usual for language models"]


class OfflineSettings(TrainSettings):
    """Settings of training on fixed data."""

    epochs: int = Field(1, ge=1, le=100_000)
    """Number of passes over the data."""
    max_steps: int | None = Field(None, ge=1, le=100_000_000)
    """Maximum number of optimizer steps."""
    checkpoint_every: int = Field(50, ge=1, le=100_000_000)
    """Number of optimizer steps between checkpoints."""


class OnlineSettings(TrainSettings):
    """Settings of training on the policy's own samples."""

    critic_lr: float | None = Field(None, gt=0, le=1)
    """Peak learning rate of the critic; null: the actor's."""
    iterations: int | None = Field(None, ge=1, le=10_000_000)
    """Number of iterations, each with its own rollout; null: as many as `epochs` passes over the prompts need."""
    epochs: int = Field(1, ge=1, le=100_000)
    """Number of passes over the prompts, if `iterations` is null."""
    checkpoint_every: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000_000)
    """Number of rollouts between checkpoints."""

    def warnings(self) -> list[str]:
        both = self.iterations is not None and "epochs" in self.model_fields_set
        ignored = ["train.epochs: ignored, because train.iterations is set: remove one of them"] * both
        return [*super().warnings(), *ignored]


def schedule(settings: TrainSettings, steps: int) -> Callable[[float], float]:
    """Return a function from the number of finished optimizer steps, out of `steps`, to the factor of the peak learning
    rate.
    """
    warmup = round(settings.warmup * steps)
    floor = settings.min_lr_ratio

    def factor(step: float) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if settings.schedule == "constant":
            return 1.0
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        fall = 0.5 * (1 + math.cos(math.pi * done)) if settings.schedule == "cosine" else 1.0 - done
        return floor + (1 - floor) * fall

    return factor


def trainer(
    settings: TrainSettings,
    run: Run,
    *,
    rounds: int,
    micro_batches: int,
    between: BetweenRounds,
    parallel: Mapping[str, Any],
) -> Trainer:
    """Return a Lightning trainer for `rounds` rounds whose optimizer steps take `micro_batches` micro-batches on each
    device.

    parallel: Lightning's strategy and precision, of `fgrl.training.strategies.arguments`.
    """
    settings.check_machine()
    _hush()
    trainer: Trainer = lightning.pytorch.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.nodes,
        max_epochs=rounds,
        accumulate_grad_batches=micro_batches,
        gradient_clip_val=settings.clip_norm,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=True,  # by the callback below
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=run.dir,
        callbacks=[between],
        **parallel,
    )
    return trainer


def fit(engine: Trainer, module: LightningModule, run: Run, settings: TrainSettings) -> None:
    """Train, resuming from `last.ckpt` if it exists.

    Raises `KeyboardInterrupt` after a Ctrl-C (`Aborted` after the second), where Lightning would exit the interpreter.
    """
    checkpoints.remove_damaged(run, folder=settings.strategy == "fsdp" or settings.deepspeed)
    engine._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign] # ours decide
    with _quiet_warnings(), _sigint_kept():
        try:
            engine.fit(module, ckpt_path=checkpoints.last(run.dir), weights_only=True)
        except SystemExit as left:
            interrupt = left.__context__
            if isinstance(interrupt, KeyboardInterrupt):
                raise interrupt from None
            raise as_user_error(left) or Aborted("aborted") from left


@contextmanager
def _sigint_kept() -> Iterator[None]:
    """Restore the handler of Ctrl-C after the context: Lightning leaves Ctrl-C ignored when it stops after one."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _hush() -> None:
    """Pass Lightning's messages to the root logger instead of its own handler, which writes to stderr.

    Its messages about devices, its own limits and other products are dropped.
    """
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in ("utilities.rank_zero", "trainer.connectors.checkpoint_connector"):
        logging.getLogger(f"lightning.pytorch.{name}").setLevel(logging.WARNING)


EXPECTED = (
    r"Found .* in eval mode.*",  # online training has no dropout, so that the probability ratio starts at 1
    r".*does not have many workers.*",
    r"Total length of .* across ranks is zero.*",  # resuming from a checkpoint after the last round
    r".*isinstance\(treespec, LeafSpec\).*",
    r".*weights_only.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*`training_step` returned.*",
    r"GPU available but not used.*",  # train.accelerator says so
)
"""Warnings that libraries emit during a normal training."""


@contextmanager
def _quiet_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        for message in EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        yield
