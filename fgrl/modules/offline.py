"""Training on fixed data: reward models, DPO, supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fgrl.kinds import Numbers, OfflineAlgorithm, Run
from fgrl.modules.base import RoundModule
from fgrl.modules.steps import Step, StepLoader, micro_batches_per_step, order
from fgrl.modules.tally import Tally
from fgrl.modules.trainer import OfflineSettings
from fgrl.modules.units import EncodedUnits, Row
from fgrl.types import Batch


class OfflineModule(RoundModule):
    """An `OfflineAlgorithm` over `units` (rows, or pairs of rows)."""

    settings: OfflineSettings
    counted = "training"

    def __init__(
        self,
        model: Any,
        algorithm: OfflineAlgorithm,
        units: Sequence[Sequence[Row]],
        settings: OfflineSettings,
        run: Run,
    ) -> None:
        self.algorithm = algorithm
        self.units = self._encoded(model, units)
        self.pieces = micro_batches_per_step(settings.batch_size, settings.micro_batch_size, settings.devices)
        steps = order(len(units), settings.batch_size, settings.epochs, run.seed)
        self.steps = steps[: settings.max_steps]
        rounds = -(-len(self.steps) // settings.checkpoint_every)
        super().__init__(model, settings, run, rounds=rounds, total_steps=len(self.steps))

    def _encoded(self, model: Any, units: Sequence[Sequence[Row]]) -> EncodedUnits:
        return EncodedUnits(units, pad_id=model.pad_id, eos_ids=model.eos_ids, columns=self.algorithm.columns)

    def progress(self) -> tuple[int, int]:
        return min(self.round * self.settings.checkpoint_every, len(self.steps)), len(self.steps)

    def loader(self) -> StepLoader:
        self.model.train()
        every = self.settings.checkpoint_every
        return StepLoader(
            self.units, self.steps[self.round * every : (self.round + 1) * every], micro_batches=self.pieces,
            rank=self.global_rank, world=self.trainer.world_size, shared=self.model.shares_prompts(gradient=True),
        )  # fmt: skip

    def loss(self, batch: Batch) -> tuple[Tensor, Numbers]:
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
    def measure(self, units: Sequence[Sequence[Row]]) -> dict[str, float]:
        """The algorithm's metrics on held-out units."""
        self.model.eval()
        tally = Tally()
        size = self.settings.micro_batch_size
        parts = [list(range(i, min(i + size, len(units)))) for i in range(0, len(units), size)]
        for part in parts:
            for batch in StepLoader(self._encoded(self.model, units), [Step(part)], micro_batches=1):
                _loss, metrics = self.algorithm.loss(self.model, batch.to(self.model.device))
                tally.add(metrics, rows=len(batch.mask))
        return tally.take()
