"""Typed settings of training, and the Lightning trainer made of them.

A training is a row of rounds (Lightning epochs): a rollout of online training, or some optimizer steps of offline
training. Rounds are what a checkpoint falls between; everything random inside a round is seeded by its number, so a
training that was killed goes on from its last round and ends with the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fgrl import lazy
from fgrl.components.kinds import Run
from fgrl.registry import Settings, Unkeyed

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
lightning = lazy.load("lightning")
callbacks = lazy.load("fgrl.modules.callbacks")

Strategy = Literal["auto", "ddp", "fsdp", "deepspeed_stage_2", "deepspeed_stage_3"]


class TrainSettings(Settings):
    """Optimizer, schedule and hardware of a training stage."""

    lr: float = Field(gt=0)
    """Peak learning rate (of the actor, in online training)."""
    batch_size: int = Field(ge=1)
    """Rows (pairs, for preference data) of one optimizer step, over all devices."""
    micro_batch_size: Annotated[int, Unkeyed] = Field(8, ge=1)
    """Rows that go through the model at once on one device. Changes memory and speed, never the loss."""
    betas: list[float] = Field([0.9, 0.95], min_length=2, max_length=2)
    """Adam's decay rates."""
    eps: float = Field(1e-8, gt=0)
    """Adam's epsilon."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    clip_norm: float | None = Field(1.0, gt=0)
    """Gradients are clipped to this norm, actor and critic each for itself; null switches it off."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Learning rate after the warm-up."""
    warmup: float = Field(0.03, ge=0, le=1)
    """Share of the optimizer steps over which the learning rate rises from 0."""
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    """The schedule ends at this share of the peak."""
    precision: Literal["32-true", "bf16-mixed", "bf16-true"] = "32-true"
    """Lightning's precision: `bf16-mixed` is bfloat16 autocast over the weights as loaded."""
    strategy: Annotated[Strategy, Unkeyed] = "auto"
    """Lightning's strategy."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1)
    """Processes, one a device."""
    accelerator: Annotated[Literal["auto", "cpu", "gpu"], Unkeyed] = "auto"
    """Kind of device."""

    def processes(self) -> int:
        return self.devices


class OfflineSettings(TrainSettings):
    """Training on fixed data."""

    epochs: int = Field(1, ge=1)
    """Passes over the data."""
    max_steps: int | None = Field(None, ge=1)
    """Stop after this many optimizer steps."""
    checkpoint_every: Annotated[int, Unkeyed] = Field(50, ge=1)
    """Optimizer steps between checkpoints."""


class OnlineSettings(TrainSettings):
    """Training on the policy's own samples."""

    critic_lr: float | None = Field(None, gt=0)
    """Peak learning rate of the critic; null: as the actor's."""
    iterations: int | None = Field(None, ge=1)
    """Rollouts to collect; null: as many as `epochs` passes over the prompts need."""
    epochs: int = Field(1, ge=1)
    """Passes over the prompts, when `iterations` is null."""
    checkpoint_every: Annotated[int, Unkeyed] = Field(1, ge=1)
    """Rollouts between checkpoints."""


def schedule(settings: TrainSettings, steps: int) -> Callable[[int], float]:
    """Factor of the peak learning rate before optimizer step `i` (0-based) of `steps`."""
    warmup = round(settings.warmup * steps)
    floor = settings.min_lr_ratio

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if settings.schedule == "constant":
            return 1.0
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        fall = 0.5 * (1 + math.cos(math.pi * done)) if settings.schedule == "cosine" else 1.0 - done
        return floor + (1 - floor) * fall

    return factor


def deepspeed_config(settings: TrainSettings) -> dict[str, Any]:
    """The DeepSpeed configuration of `strategy: deepspeed_stage_2|3`; batch and clipping keys are Lightning's to fill."""
    stage = int(settings.strategy[-1])
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": 200_000_000,
    }
    if stage == 2:
        zero |= {"allgather_partitions": True, "allgather_bucket_size": 200_000_000, "reduce_scatter": True}
    else:
        zero |= {"stage3_gather_16bit_weights_on_model_save": False, "stage3_prefetch_bucket_size": 50_000_000}
    return {"zero_optimization": zero, "zero_allow_untested_optimizer": True}


def strategy(settings: TrainSettings) -> Any:
    """What Lightning's `Trainer(strategy=...)` takes."""
    if settings.strategy.startswith("deepspeed"):
        return lightning.pytorch.strategies.DeepSpeedStrategy(config=deepspeed_config(settings))
    if settings.strategy == "ddp" and settings.accelerator == "cpu":
        return lightning.pytorch.strategies.DDPStrategy(process_group_backend="gloo")
    return settings.strategy


def trainer(settings: TrainSettings, run: Run, *, rounds: int, pieces: int, checkpoint_every: int) -> Trainer:
    """A Lightning trainer for `rounds` rounds whose optimizer steps take `pieces` micro-batches each."""
    return lightning.pytorch.Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        strategy=strategy(settings),
        precision=settings.precision,
        max_epochs=rounds,
        accumulate_grad_batches=pieces,
        gradient_clip_val=settings.clip_norm,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=run.dir,
        callbacks=[callbacks.RoundCheckpoint(run, every=checkpoint_every), callbacks.Interrupt(run)],
    )


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to go on from, if there is one."""
    path = folder / "last.ckpt"
    return path if path.exists() else None
