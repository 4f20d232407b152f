"""Units of training: a unit is a row (a prompt and a response), or a pair of rows. Any selection of them can become a
`Batch`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fgrl import rollouts
from fgrl.rollouts.rows import EncodedRow
from fgrl.types import Batch, Column, Rollout, TensorRows, Tokens
from fgrl.types.columns import NamedTensors
from fgrl.types.tensors import declarations


class Shape(NamedTuple):
    """The size of a unit."""

    prompt: tuple[int, ...]
    """Token ids of its first row's prompt."""
    length: int
    """Number of tokens of all its rows, prompts and responses."""
    longest_response: int
    tokens: int
    """Number of response tokens of all its rows that are in the loss."""
    rows: int


class Units(ABC):
    """Rows to train on, grouped into units."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def shape(self, unit: int) -> Shape: ...

    @abstractmethod
    def batch(self, units: Sequence[int]) -> Batch:
        """Return the rows of these units, with their own totals."""


class EncodedUnits(Units):
    """Units of a fixed data set: `units[i]` are the rows of unit i. `columns` declares the columns of the rows."""

    def __init__(
        self,
        units: Sequence[Sequence[EncodedRow]],
        *,
        pad_id: int,
        eos_ids: set[int],
        columns: Mapping[str, Column] | None = None,
    ) -> None:
        self.units, self.pad_id, self.eos_ids = units, pad_id, eos_ids
        self.columns = columns or {}

    def __len__(self) -> int:
        return len(self.units)

    def shape(self, unit: int) -> Shape:
        rows = self.units[unit]
        lengths = [len(row["response"]) for row in rows]
        whole = sum(len(row["prompt"]) for row in rows) + sum(lengths)
        return Shape(tuple(rows[0]["prompt"]), whole, max(lengths), sum(lengths), len(rows))

    def batch(self, units: Sequence[int]) -> Batch:
        return collate([row for unit in units for row in self.units[unit]], self.pad_id, self.eos_ids, self.columns)


def collate(rows: Sequence[EncodedRow], pad_id: int, eos_ids: set[int], columns: Mapping[str, Column]) -> Batch:
    """Return rows as a `Batch` with its own totals. Raises ValueError for a column that is not in `columns`."""
    tokens = rollouts.pad_rows(rows, pad_id, eos_ids)
    undeclared = sorted(rows[0]["columns"].keys() - columns.keys())
    if undeclared:
        raise ValueError(
            f"the column {undeclared[0]} of the rows is not declared; declare it in the algorithm's `columns`"
        )
    return Batch(
        **vars(tokens),
        columns=NamedTensors(
            {
                name: columns[name].stack([row["columns"][name] for row in rows], tokens.mask.shape[1])
                for name in rows[0]["columns"]
            }
        ),
        total_tokens=float(tokens.drawn.sum()),
        total_rows=float(len(rows)),
    )


class RolloutUnits(Units):
    """Responses of a rollout, each of them a unit, with every column of the rollout and of `others` (rewards,
    advantages).
    """

    def __init__(self, rollout: Rollout, *others: TensorRows, pad_id: int) -> None:
        self.rollout, self.pad_id = rollout.to("cpu"), pad_id
        ids = declarations(Tokens)  # which a batch has as fields of its own
        self.columns = {name: column for name, column in self.rollout.tensors().items() if name not in ids}
        for other in others:
            more = other.to("cpu").tensors()
            twice = sorted(self.columns.keys() & more.keys())
            if twice:
                raise ValueError(f"two columns are called {twice[0]}; rename the one of {type(other).__name__}")
            self.columns = self.columns | more
        masks = zip(self.rollout.prompt_ids, self.rollout.prompt_mask, strict=True)
        self._prompts = [tuple(ids[mask].tolist()) for ids, mask in masks]
        self._lengths: list[int] = self.rollout.mask.sum(dim=1).tolist()
        drawn = self.rollout.drawn
        counted = drawn & self.columns["trained"][1] if "trained" in self.columns else drawn
        self._counted: list[int] = counted.sum(dim=1).tolist()

    def __len__(self) -> int:
        return len(self._lengths)

    def shape(self, unit: int) -> Shape:
        prompt, response = self._prompts[unit], self._lengths[unit]
        return Shape(prompt, len(prompt) + response, response, self._counted[unit], 1)

    def batch(self, units: Sequence[int]) -> Batch:
        rows = torch.tensor(units, dtype=torch.long)
        tokens = rollouts.trim(rollouts.select(self.rollout, rows))
        tokens.prompt_ids = torch.where(tokens.prompt_mask, tokens.prompt_ids, self.pad_id)
        tokens.response_ids = torch.where(tokens.mask, tokens.response_ids, self.pad_id)

        def column(declaration: Column, value: Tensor) -> Tensor:
            return declaration.cut(declaration.take(value, rows), tokens.prompt_mask, tokens.mask)

        return Batch(
            **vars(tokens),
            columns=NamedTensors(
                {name: column(declaration, value) for name, (declaration, value) in self.columns.items()}
            ),
            total_tokens=float(sum(self._counted[unit] for unit in units)),
            total_rows=float(len(units)),
        )
