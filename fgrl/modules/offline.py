"""Training on fixed data: reward models, DPO, supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fgrl.kinds import OfflineAlgorithm, Run
from fgrl.modules.base import RoundModule
from fgrl.modules.data import Step, StepLoader, Unit, order, pieces
from fgrl.modules.tally import Tally
from fgrl.modules.trainer import OfflineSettings
from fgrl.types import Batch


class OfflineModule(RoundModule):
    """An `OfflineAlgorithm` over `units` (rows, or pairs of rows)."""

    settings: OfflineSettings
    counted = "training"

    def __init__(
        self, model: Any, algorithm: OfflineAlgorithm, units: Sequence[Unit], settings: OfflineSettings, run: Run
    ) -> None:
        self.algorithm, self.units = algorithm, units
        self.pieces = pieces(settings.batch_size, settings.micro_batch_size, settings.devices)
        steps = order(len(units), settings.batch_size, settings.epochs, run.seed)
        self.steps = steps[: settings.max_steps]
        rounds = -(-len(self.steps) // settings.checkpoint_every)
        super().__init__(model, settings, run, rounds=rounds, total_steps=len(self.steps))

    def progress(self) -> tuple[int, int]:
        return min(self.round * self.settings.checkpoint_every, len(self.steps)), len(self.steps)

    def loader(self) -> StepLoader:
        self.model.train()
        every = self.settings.checkpoint_every
        return StepLoader(
            self.units, self.steps[self.round * every : (self.round + 1) * every], pieces=self.pieces,
            pad_id=self.model.pad_id, eos_ids=self.model.eos_ids, rank=self.global_rank, world=self.trainer.world_size,
            shared=self.model.shares_prompts(gradient=True),
        )  # fmt: skip

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        return self.algorithm.loss(self.model, batch)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        if (batch_idx + 1) % self.pieces:
            return
        metrics = self.noted()
        self.run.log(metrics, step=self.trainer.global_step)
        if self.ticker is not None:
            self.ticker.advance(1, **{name: metrics[name] for name in ("loss", "accuracy") if name in metrics})

    def on_train_epoch_end(self) -> None:
        self.round += 1

    @torch.no_grad()
    def measure(self, units: Sequence[Unit]) -> dict[str, float]:
        """The algorithm's metrics on held-out units."""
        self.model.eval()
        tally = Tally()
        size = self.settings.micro_batch_size
        parts = [list(range(i, min(i + size, len(units)))) for i in range(0, len(units), size)]
        for part in parts:
            for batch in StepLoader(
                units, [Step(part)], pieces=1, pad_id=self.model.pad_id, eos_ids=self.model.eos_ids
            ):
                _loss, metrics = self.algorithm.loss(self.model, batch.to(self.model.device))
                tally.add(metrics, rows=len(batch.mask))
        return tally.take()
