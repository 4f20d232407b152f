"""What offline and online training share: optimizer, schedule, clipping, seeds, slim checkpoints, logging."""

from __future__ import annotations

import random
import signal
import threading
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from fgrl import models, seeds
from fgrl.errors import Stopped
from fgrl.kinds import Numbers, Run, Ticker
from fgrl.modules.tally import Tally
from fgrl.modules.trainer import SHARDED, TrainSettings, fit, schedule, trainer
from fgrl.types import Batch


class RoundModule(LightningModule):
    """A model trained in rounds. Subclasses give the loader of each round and the loss of a micro-batch."""

    counted: str
    """What the progress line counts."""
    pieces: int
    """Micro-batches of an optimizer step on each device."""

    def __init__(self, model: Any, settings: TrainSettings, run: Run, *, rounds: int, total_steps: int) -> None:
        super().__init__()
        self.model = model
        self.settings, self.run, self.rounds, self.total_steps = settings, run, rounds, total_steps
        for part in model.modules():
            if isinstance(part, models.LanguageModel):
                part.sharded = settings.strategy in SHARDED
        self.strict_loading = False  # checkpoints hold only what training changes
        self.round = 0
        self.ticker: Ticker | None = None
        self._stack = ExitStack()
        self._sigterm = signal.getsignal(signal.SIGTERM)
        self._extra: dict[str, float] = {}
        self.tally = Tally()
        self._loss = 0.0
        self._steps = 0

    # -- to be filled in ----------------------------------------------------------------------------------------------

    @abstractmethod
    def loader(self) -> Iterable[Batch]:
        """The micro-batches of round `self.round`. Every library's generator has been seeded for it."""

    @abstractmethod
    def loss(self, batch: Batch) -> tuple[Tensor, Numbers]:
        """Loss and metrics of a micro-batch."""

    @abstractmethod
    def progress(self) -> tuple[int, int]:
        """How many of how many `counted` are done."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Each group has its own peak learning rate and is clipped for itself."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return [{"params": parameters, "lr": self.settings.lr}]

    def fit(self, checkpoint_every: int) -> None:
        """Train, going on from `last.ckpt` when there is one; a checkpoint every `checkpoint_every` rounds."""
        engine = trainer(
            self.settings, self.run, rounds=self.rounds, pieces=self.pieces, checkpoint_every=checkpoint_every
        )
        with self._stack:
            fit(engine, self, self.run)
        self.ticker = None

    # -- Lightning's hooks --------------------------------------------------------------------------------------------

    def train_dataloader(self) -> Iterable[Batch]:
        if self.trainer.current_epoch != self.round:  # everything random follows the round, the end Lightning's count
            raise RuntimeError(
                f"Lightning is in epoch {self.trainer.current_epoch}, this training in round {self.round}"
            )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._sigterm)  # Lightning's own handler leaves in the middle of a round
        if self.ticker is None:
            done, total = self.progress()
            self.ticker = self._stack.enter_context(self.run.progress(self.counted, total, done))
        if self.round == self.rounds:  # Lightning asks before it sees that nothing is left to do
            return []
        self.seed_round()
        return self.loader()

    def configure_optimizers(self) -> Any:
        settings = self.settings
        optimizer = torch.optim.AdamW(
            self.parameter_groups(),
            lr=settings.lr,
            betas=(settings.betas[0], settings.betas[1]),
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule(settings, self.total_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        limit = gradient_clip_val
        if self.settings.strategy.startswith("deepspeed"):
            return  # DeepSpeed clips by itself, and has no gradients here
        if self.settings.strategy in SHARDED:  # each process has a part of each gradient: the wrapper knows the norm
            wrapper: Any = self.trainer.strategy.model
            self._extra["grad_norm"] = float(wrapper.clip_grad_norm_(float("inf") if limit is None else limit))
            return
        networks: dict[str, list[Any]] = defaultdict(list)
        for group in optimizer.param_groups:
            networks[group.get("name", "").removesuffix("_no_decay")] += group["params"]
        for name, group in networks.items():
            norm = torch.nn.utils.clip_grad_norm_(group, float("inf") if limit is None else limit)
            self._extra["critic_grad_norm" if name == "critic" else "grad_norm"] = float(norm)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self._extra["lr"] = optimizer.param_groups[0]["lr"]
        self._steps += 1

    def training_step(self, batch: Batch, index: int) -> Tensor:
        loss, metrics = self.loss(batch)
        if not self.trainer.strategy.reduce_boolean_decision(bool(torch.isfinite(loss))):  # all leave, or none
            raise Stopped(
                f"the loss is not finite at step {self.trainer.global_step}; the last good checkpoint is kept. "
                "Lower train.lr, or look at the curves with `fgrl report`."
            )
        self.tally.add(metrics, rows=len(batch.mask) if batch.scale else 0)
        if batch.scale:
            self._loss += float(loss.detach()) / batch.scale
        return loss

    def seed_round(self) -> None:
        """Every library's generator, set from the seed and the round: nothing of it has to be saved."""
        seed = seeds.of_round(self.run.seed, self.round * 7919 + self.run.rank) % 2**31
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what training changes: frozen weights come back with the model itself."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        checkpoint["state_dict"] = {k: v for k, v in checkpoint["state_dict"].items() if k in trained}
        checkpoint["round"] = self.round
        # Lightning saves before it counts the epoch as completed, and would then ask for the next round's data twice
        for counts in checkpoint["loops"]["fit_loop"]["epoch_progress"].values():
            counts["completed"] = counts["processed"]
        checkpoint["epoch"] = self.round

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.round = checkpoint["round"]
        self.run.say(f"going on from round {self.round} of {self.rounds}")

    # -- logging ------------------------------------------------------------------------------------------------------

    def noted(self) -> dict[str, float]:
        """Metrics since the last call, over all micro-batches and processes; every process has to ask.

        "loss" is the loss of an optimizer step: however it was cut up, it is the same.
        """
        reduce = self._over_processes if self.trainer.world_size > 1 else None
        found = self.tally.take(reduce) | self._extra
        loss = self._loss if reduce is None else reduce([self._loss], "sum")[0]
        if self._steps:
            found["loss"] = loss / self._steps
        self._loss, self._steps = 0.0, 0
        return found

    def _over_processes(self, numbers: list[float], how: str) -> list[float]:
        mine = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        return self.trainer.strategy.reduce(mine, reduce_op=how).tolist()  # type: ignore[arg-type, union-attr]
