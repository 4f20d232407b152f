"""Training on fixed data: reward models, DPO, supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fgrl import models
from fgrl.kinds import CreditsTokens, Numbers, OfflineAlgorithm, Run
from fgrl.kinds.functions import checked_credit
from fgrl.rollouts.rows import EncodedRow
from fgrl.training.rounds import Process, Rounds
from fgrl.training.steps import Step, StepLoader, micro_batches_per_step, order
from fgrl.training.tally import Tally
from fgrl.training.trainer import OfflineSettings
from fgrl.training.units import EncodedUnits
from fgrl.types import Batch


class UnitBatches(Sequence[Batch]):
    """Some of the units, each as a separate batch, made when it is read."""

    def __init__(self, units: EncodedUnits, numbers: Sequence[int], device: Any) -> None:
        self._units, self._numbers, self._device = units, numbers, device

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        number = self._numbers[index]
        return [self[i] for i in range(*index.indices(len(self)))] if isinstance(index, slice) else self._batch(number)

    def _batch(self, unit: int) -> Batch:
        batch: Batch = self._units.batch([unit]).to(self._device)
        return batch


class OfflineRounds(Rounds):
    """Training of an `OfflineAlgorithm` on `units` (rows, or pairs of rows). A round is `checkpoint_every` optimizer
    steps.
    """

    unit = "training"
    reports = "step"
    settings: OfflineSettings

    def __init__(
        self,
        model: Any,
        algorithm: OfflineAlgorithm,
        units: Sequence[Sequence[EncodedRow]],
        settings: OfflineSettings,
        run: Run,
    ) -> None:
        self.model, self.algorithm, self.settings, self.run = model, algorithm, settings, run
        self.units = self._encoded(units)
        size = settings.units_at_once(algorithm.unit_by_unit())
        self.micro_batches = micro_batches_per_step(settings.batch_size, size, settings.world)
        self.packed = settings.tokens_at_once(algorithm.unit_by_unit())
        self._begun = False
        self.steps = order(len(units), settings.batch_size, settings.epochs, run.seed)[: settings.max_steps]
        self.count, self.total_steps = -(-len(self.steps) // settings.checkpoint_every), len(self.steps)

    def _encoded(self, units: Sequence[Sequence[EncodedRow]]) -> EncodedUnits:
        return encode(units, self.model, self.algorithm)

    def progress(self, number: int) -> tuple[int, int]:
        return min(number * self.settings.checkpoint_every, len(self.steps)), len(self.steps)

    def position(self, number: int, done: int) -> float:
        return number * self.settings.checkpoint_every + done

    def start(self, number: int, process: Process) -> StepLoader:
        if not self._begun:
            self._begun = True
            needed = sorted({unit for step in self.steps for unit in step.units})
            units = UnitBatches(self.units, needed, self.model.device)
            with process.forward_context():
                self.algorithm.begin(self.model, units, self.run, process.rank, process.world)
        self.model.train()
        every = self.settings.checkpoint_every
        loader = StepLoader(
            self.units, self.steps[number * every : (number + 1) * every], micro_batches=self.micro_batches,
            rank=process.rank, world=process.world, shared=self.model.shares_prompts(gradient=True), packed=self.packed,
        )  # fmt: skip
        self.micro_batches = loader.micro_batches
        return loader

    def report(self, metrics: dict[str, float], number: int) -> dict[str, float]:
        self.run.log(metrics, step=number)
        return {name: metrics[name] for name in ("loss", "accuracy") if name in metrics}

    @torch.no_grad()
    def measure(self, units: Sequence[Sequence[EncodedRow]]) -> dict[str, float]:
        """Return the algorithm's metrics on held-out units."""
        self.model.eval()
        tally, encoded, micro_batch_size = Tally(), self._encoded(units), self.settings.micro_batch_size
        for start in range(0, len(units), micro_batch_size):
            rows, metrics = self._metrics(encoded, range(start, min(start + micro_batch_size, len(units))))
            tally.add(metrics, rows)
        return tally.take()

    def metrics_of(self, units: Sequence[Sequence[EncodedRow]]) -> Callable[[int], Numbers]:
        """Return a function that computes the algorithm's metrics on one of the units, as in a separate step."""
        encoded = self._encoded(units)
        return lambda unit: self._metrics(encoded, [unit])[1]

    def credited(self, units: Sequence[Sequence[EncodedRow]]) -> Iterator[list[tuple[EncodedRow, dict[str, Tensor]]]]:
        """Yield the rows of each unit with the credit of their tokens under the model."""
        return credited(self.model, self.algorithm, self._encoded(units))

    def _metrics(self, encoded: EncodedUnits, units: Sequence[int]) -> tuple[int, Numbers]:
        """Return the number of rows and the metrics of a step without an update."""
        (batch,) = StepLoader(encoded, [Step(list(units))], micro_batches=1)
        _loss, metrics = self.loss(batch.to(self.model.device))
        return len(batch.mask), metrics


def encode(units: Sequence[Sequence[EncodedRow]], model: Any, algorithm: OfflineAlgorithm) -> EncodedUnits:
    """Return units in a form from which any selection can be made into a batch for the algorithm."""
    return EncodedUnits(units, pad_id=model.pad_id, eos_ids=model.eos_ids, columns=algorithm.columns)


def credited(
    model: Any, algorithm: OfflineAlgorithm, units: EncodedUnits
) -> Iterator[list[tuple[EncodedRow, dict[str, Tensor]]]]:
    """Yield the rows of each unit with the credit of their tokens, [T] by name: empty if the algorithm computes none.

    Raises `UserCodeError` for an invalid result of an algorithm's `token_credit`.
    """
    for place, rows in enumerate(units.units):
        named: dict[str, Tensor] = {}
        if isinstance(algorithm, CreditsTokens):
            batch = units.batch([place]).to(model.device)
            with torch.no_grad(), models.evaluating(model):
                named = checked_credit(algorithm, algorithm.token_credit(model, batch), batch)
        yield [
            (row, {name: value[i, : len(row["response"])].cpu() for name, value in named.items()})
            for i, row in enumerate(rows)
        ]
