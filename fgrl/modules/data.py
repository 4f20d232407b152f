"""Rows to micro-batches, cut so that the cut does not matter.

A row is a dict, or a `Row` that looks like one: "prompt" and "response" (token ids), "finished" (ends with an
end-of-sequence token), "columns" (name -> tensor of one value, or one a response token). An optimizer step takes
`batch_size` units (a unit is a row, or a pair of rows); it is split into `pieces x ranks` micro-batches of nearly equal
size, and each knows the totals of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fgrl import models, rollouts, seeds
from fgrl.types import Batch

Row = Mapping[str, Any]
Unit = Sequence[Row]


@dataclass(frozen=True)
class Step:
    """The units of one optimizer step."""

    units: list[int]


def order(count: int, batch_size: int, epochs: int, seed: int) -> list[Step]:
    """All optimizer steps of a training, shuffled anew each epoch; the last step of an epoch may be smaller."""
    steps = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seeds.of_round(seed, epoch) % 2**63)
        shuffled = torch.randperm(count, generator=generator).tolist()
        cuts = [shuffled[i : i + batch_size] for i in range(0, count, batch_size)]
        steps += [Step(cut) for cut in cuts]
    return steps


def split(units: Sequence[Any], parts: int) -> list[Sequence[Any]]:
    """`parts` consecutive slices whose lengths differ by one at the most."""
    quotient, rest = divmod(len(units), parts)
    bounds = [0]
    for i in range(parts):
        bounds.append(bounds[-1] + quotient + (i < rest))
    return [units[a:b] for a, b in pairwise(bounds)]


def stack(values: Sequence[Tensor], length: int) -> Tensor:
    """Columns of rows as one tensor: [N], or [N,length] padded on the right (False, 0, or -1 for integers)."""
    if values[0].ndim == 0:
        return torch.stack(list(values))
    fill = -1 if values[0].dtype == torch.int64 else 0
    out = torch.full((len(values), length), fill, dtype=values[0].dtype)
    for i, value in enumerate(values):
        out[i, : len(value)] = value
    return out


def collate(rows: Sequence[Row], pad_id: int, eos_ids: set[int]) -> Batch:
    """Rows as a `Batch` with its own totals."""
    tokens = rollouts.pad(
        [row["prompt"] for row in rows], [row["response"] for row in rows], pad_id=pad_id, eos_ids=eos_ids
    )
    length = tokens.response_ids.shape[1]
    return Batch(
        prompt_ids=tokens.prompt_ids,
        prompt_mask=tokens.prompt_mask,
        response_ids=tokens.response_ids,
        mask=tokens.mask,
        eos=tokens.eos,
        columns={name: stack([row["columns"][name] for row in rows], length) for name in rows[0]["columns"]},
        total_tokens=float(sum(len(row["response"]) for row in rows)),
        total_rows=float(len(rows)),
    )


class StepLoader:
    """Iterates over the micro-batches of some optimizer steps, `pieces` a step, for one of `world` ranks."""

    def __init__(
        self, units: Sequence[Unit], steps: Sequence[Step], *, pieces: int, pad_id: int, eos_ids: set[int],
        rank: int = 0, world: int = 1, temperature: float = 1.0, shared: bool = True,
    ) -> None:  # fmt: skip
        """`shared`: the model reads a prompt once that several rows of a micro-batch have in common."""
        self.units, self.steps, self.pieces, self.temperature = units, steps, pieces, temperature
        self.pad_id, self.eos_ids, self.rank, self.world, self.shared = pad_id, eos_ids, rank, world, shared

    def __len__(self) -> int:
        return len(self.steps) * self.pieces

    def __iter__(self) -> Iterator[Batch]:
        for step in self.steps:
            rows_of = self._arranged([self.units[i] for i in step.units])
            tokens = float(sum(len(row["response"]) for unit in rows_of for row in unit))
            rows = float(sum(len(unit) for unit in rows_of))
            for part in split(rows_of, self.pieces * self.world)[self.rank :: self.world]:
                batch = collate([row for unit in part or rows_of[-1:] for row in unit], self.pad_id, self.eos_ids)
                batch.total_tokens, batch.total_rows = tokens, rows
                # every rank runs every piece of a step; where a small step has no unit left, one is run for nothing
                batch.scale = float(self.pieces * self.world) if part else 0.0
                batch.temperature = self.temperature
                yield batch

    def _arranged(self, units: list[Unit]) -> list[Unit]:
        """Together what costs the least: which units share a micro-batch does not matter for anything else."""
        firsts = [unit[0]["prompt"] for unit in units]
        longest = [max(len(row["response"]) for row in unit) for unit in units]
        chosen = models.arrange(
            [tuple(prompt) for prompt in firsts], [len(prompt) for prompt in firsts], longest,
            [len(part) for part in split(units, self.pieces * self.world)], each=len(units[0]), shared=self.shared,
        )  # fmt: skip
        return [units[i] for i in chosen]


def pieces(batch_size: int, micro_batch_size: int, world: int) -> int:
    """Micro-batches a rank runs for one optimizer step, so that none has more than `micro_batch_size` units."""
    return -(-batch_size // (micro_batch_size * world))
