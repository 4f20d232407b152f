"""Division of optimizer steps into micro-batches that does not change the loss.

An optimizer step takes `batch_size` units. It is split into (micro-batches per device x ranks) micro-batches with
nearly equal numbers of units or, if rows are read without padding, of tokens. Each micro-batch has the totals of the
step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from fgrl import models
from fgrl.base import seeds
from fgrl.rollouts import token_budget
from fgrl.training.units import Units
from fgrl.types import Batch


@dataclass(frozen=True)
class Step:
    """Units of one optimizer step."""

    units: list[int]


def order(count: int, batch_size: int, epochs: int, seed: int, *, even: bool = False) -> list[Step]:
    """Return all optimizer steps of a training, shuffled again for each epoch, with at most `batch_size` units each.

    Remaining units make the last step of an epoch smaller. With `even` they are spread over all steps of the epoch,
    whose sizes differ by at most one unit.
    """
    steps = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seeds.of_round(seed, epoch) % 2**63)
        shuffled = torch.randperm(count, generator=generator).tolist()
        cuts = [shuffled[i : i + batch_size] for i in range(0, count, batch_size)]
        steps += [Step(list(cut)) for cut in (split(shuffled, len(cuts)) if even else cuts)]
    return steps


def split(units: Sequence[Any], parts: int) -> list[Sequence[Any]]:
    """Return `parts` consecutive slices whose lengths differ by at most one."""
    quotient, rest = divmod(len(units), parts)
    bounds = [0]
    for i in range(parts):
        bounds.append(bounds[-1] + quotient + (i < rest))
    return [units[a:b] for a, b in pairwise(bounds)]


def micro_batches_per_step(batch_size: int, micro_batch_size: int, world: int) -> int:
    """Return the number of micro-batches of one optimizer step on each rank, so that none has more than
    `micro_batch_size` units.
    """
    return -(-batch_size // (micro_batch_size * world))


class StepLoader:
    """Iterator over the micro-batches of optimizer steps, `micro_batches` per step, for one of `world` ranks."""

    def __init__(
        self, units: Units, steps: Sequence[Step], *, micro_batches: int, rank: int = 0, world: int = 1,
        temperature: float = 1.0, shared: bool = True, planned_rows: float | None = None, packed: int | None = None,
    ) -> None:  # fmt: skip
        """Create the loader. packed: maximum number of tokens of a micro-batch; the number of micro-batches is then the
        number that the largest step needs, instead of `micro_batches`. shared: True if the model computes a prompt once
        when several rows of a micro-batch have it in common. planned_rows: number of rows of a step in which none is
        missing or left out; None: its own number of rows.
        """
        self.units, self.steps, self.micro_batches = units, steps, micro_batches
        self.rank, self.world, self.temperature, self.shared = rank, world, temperature, shared
        self.planned_rows, self.packed = planned_rows, packed
        if packed is not None:
            lengths = ([units.shape(unit).length for unit in step.units] for step in steps)
            self.micro_batches = max((token_budget.fewest(each, packed, world) for each in lengths), default=1)

    def __len__(self) -> int:
        return len(self.steps) * self.micro_batches

    def __iter__(self) -> Iterator[Batch]:
        parts = self.micro_batches * self.world
        for step in self.steps:
            cuts, tokens, rows = self._arranged(step.units, parts)
            last = next(cut for cut in reversed(cuts) if cut)
            for chosen in cuts[self.rank :: self.world]:
                # every rank runs all micro-batches of a step; one without a unit repeats a unit, with a scale of 0
                batch = self.units.batch(chosen or last[-1:])
                batch.total_tokens, batch.total_rows, batch.planned_rows = tokens, rows, self.planned_rows
                batch.scale = float(parts) if chosen else 0.0
                batch.temperature = self.temperature
                yield batch

    def _arranged(self, units: Sequence[int], parts: int) -> tuple[list[list[int]], float, float]:
        """Return the units of each of the `parts` micro-batches in the cheapest order (their distribution changes
        nothing else), and the step's totals of response tokens and of rows.
        """
        shapes = [self.units.shape(unit) for unit in units]
        if self.packed is None:
            chosen = models.arrange(
                [shape.prompt for shape in shapes], [len(shape.prompt) for shape in shapes],
                [shape.longest_response for shape in shapes], [len(part) for part in split(units, parts)],
                each=shapes[0].rows, shared=self.shared,
            )  # fmt: skip
            cuts: Sequence[Sequence[int]] = split(chosen, parts)
        else:
            cuts = token_budget.dealt([shape.length for shape in shapes], parts)
        return (
            [[units[i] for i in cut] for cut in cuts],
            float(sum(shape.tokens for shape in shapes)),
            float(sum(shape.rows for shape in shapes)),
        )
