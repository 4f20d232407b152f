"""Encoded data in little memory: four bytes per token id. A row is created when it is read.

At the size of the papers' data (700 thousand pairs, a thousand tokens each) lists of Python integers take tens of GB in
every process of a training; these tables take four bytes per token. A row is a mapping (`EncodedRow`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fgrl.types import Column

EncodedRow = Mapping[str, Any]
"""A dict, or a `TableRow`: "prompt" and "response" (lists of token ids), "finished" (True if it ends with an
end-of-sequence token), "columns" (name -> tensor of one value, or of one value per response token). A `TableRow` also
has "lost": numbers of tokens cut from the beginning of the prompt and from the end of the response.
"""


T = TypeVar("T")


class Rows(Sequence[T]):
    """Sequence that makes an item when it is read; a slice is a list of items."""

    def item(self, place: int) -> T:
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]
        return self.item(place) if isinstance(place, int) else [self.item(i) for i in place]


class TokenTable(Rows["TableRow"]):
    """Rows of token ids. Rows that are added together share their prompt, which is stored once."""

    def __init__(self, columns: Mapping[str, Column] | None = None) -> None:
        """Create an empty table. `columns` declares the columns that can be set."""
        self.declared = dict(columns or {})
        self._ids = array("i")
        self._prompts, self._responses = array("q"), array("q")  # two numbers per row: start, end
        self._finished = bytearray()
        self._lost = array("i")  # two numbers per row
        self.prompt_digests = array("Q")
        """Two digests for each call of `add`, if the caller appends them (`fgrl.rollouts.trained_prompts.digests`)."""
        self._columns: dict[str, _Column] = {}

    def add(
        self, prompt: Sequence[int], *responses: Sequence[int], eos_ids: set[int], lost: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Add a row for each response to one prompt; `finished` is True if it ends with one of `eos_ids`.

        lost: for each row, the numbers of tokens cut from the beginning of its prompt and from the end of its response.
        """
        if self._columns:
            raise ValueError("the table already has columns; add all rows before")
        first = self._append(prompt)
        for response, numbers in zip(responses, lost or [(0, 0)] * len(responses), strict=True):
            self._lost.extend(numbers)
            self._prompts.extend(first)
            self._responses.extend(self._append(response))
            self._finished.append(bool(len(response)) and response[-1] in eos_ids)

    def _append(self, ids: Sequence[int]) -> tuple[int, int]:
        start = len(self._ids)
        self._ids.extend(ids)
        return start, len(self._ids)

    def __len__(self) -> int:
        return len(self._finished)

    def item(self, place: int) -> TableRow:
        return TableRow(self, place)

    def prompt(self, index: int) -> list[int]:
        return self._ids[self._prompts[2 * index] : self._prompts[2 * index + 1]].tolist()

    def response(self, index: int) -> list[int]:
        return self._ids[self._responses[2 * index] : self._responses[2 * index + 1]].tolist()

    def finished(self, index: int) -> bool:
        return bool(self._finished[index])

    def lost(self, index: int) -> tuple[int, int]:
        return self._lost[2 * index], self._lost[2 * index + 1]

    def lengths(self, what: str = "response") -> list[int]:
        """Return the number of tokens of every row's "prompt" or "response"."""
        bounds = self._prompts if what == "prompt" else self._responses
        return [end - start for start, end in zip(bounds[0::2], bounds[1::2], strict=True)]

    def cut_counts(self) -> dict[str, int]:
        """Return the numbers of prompts and responses that were cut, for a summary; without zeros."""
        prompts = {start for start, lost in zip(self._prompts[0::2], self._lost[0::2], strict=True) if lost}
        counts = {"cut prompts": len(prompts), "cut responses": sum(map(bool, self._lost[1::2]))}
        return {what: count for what, count in counts.items() if count}

    def cut_warning(self) -> str:
        """Return a warning with the number and share of rows that were cut and the row that loses most; empty if there
        are none.
        """
        limits = {
            "prompt": "max_prompt_tokens and lose their beginning",
            "response": "max_tokens allows and lose their end",
        }
        parts = []
        for place, (what, limit) in enumerate(limits.items()):
            kept, lost = self.lengths(what), self._lost[place::2]
            if worst := max(lost, default=0):
                row, cut = lost.index(worst), sum(map(bool, lost))
                parts.append(
                    f"{what}s of {cut:,} of {len(lost):,} rows ({cut / len(lost):.0%}) are longer than {limit}, such as row "
                    f"{row}: {kept[row]} of its {kept[row] + worst} tokens are kept"
                )
        return f"warning: {'; '.join(parts)}. Raise the limits" if parts else ""


class TableRow(Mapping[str, Any]):
    """Row of a `TokenTable`, like a dict."""

    __slots__ = ("_index", "_table")

    def __init__(self, table: TokenTable, index: int) -> None:
        self._table, self._index = table, index

    def __getitem__(self, name: str) -> Any:
        return PARTS[name](self._table, self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(PARTS)

    def __len__(self) -> int:
        return len(PARTS)


class _Columns(MutableMapping[str, Tensor]):
    """Columns of one row; values are stored in the table."""

    __slots__ = ("_index", "_table")

    def __init__(self, table: TokenTable, index: int) -> None:
        self._table, self._index = table, index

    def __getitem__(self, name: str) -> Tensor:
        return self._table._columns[name].get(self._index)

    def __setitem__(self, name: str, value: Tensor) -> None:
        columns = self._table._columns
        if name not in self._table.declared:
            raise ValueError(f"the column {name} is not declared; declare it in the algorithm's `columns`")
        if name not in columns:
            columns[name] = _Column(self._table.lengths(), self._table.declared[name], value.dtype)
        columns[name].set(self._index, value)

    def __delitem__(self, name: str) -> None:
        raise TypeError("columns of a table are not removed row by row")

    def __iter__(self) -> Iterator[str]:
        return (name for name, column in self._table._columns.items() if column.has(self._index))

    def __len__(self) -> int:
        return sum(1 for _ in self)


PARTS = {
    "prompt": TokenTable.prompt,
    "response": TokenTable.response,
    "finished": TokenTable.finished,
    "lost": TokenTable.lost,
    "columns": _Columns,
}
"""Functions that make each part of a row from the table and the row's place."""


class _Column:
    """One value per row, or one per response token, of all rows in one tensor. Integers are stored in four bytes."""

    def __init__(self, lengths: Sequence[int], column: Column, dtype: torch.dtype) -> None:
        self.dtype, self.single = dtype, not column.axes
        kept = torch.int32 if dtype == torch.int64 else dtype
        self.values = Ragged([1] * len(lengths) if self.single else lengths, kept)
        self.known = bytearray(len(lengths))

    def has(self, row: int) -> bool:
        return bool(self.known[row])

    def get(self, row: int) -> Tensor:
        if not self.known[row]:
            raise KeyError(f"the column has no value in row {row}")
        value: Tensor = self.values[row].to(self.dtype)
        return value[0] if self.single else value

    def set(self, row: int, value: Tensor) -> None:
        wanted = () if self.single else self.values[row].shape
        if value.dtype != self.dtype or value.shape != wanted:
            raise ValueError(
                f"row {row}: a column of {self.dtype} {list(wanted)} got {value.dtype} {list(value.shape)}; a row has one "
                "value, or one value per response token"
            )
        if value.dtype == torch.int64 and value.numel() and int(value.abs().max()) >= 2**31:
            raise ValueError(
                f"row {row}: integers of a column are stored in four bytes, and {int(value.abs().max())} does not fit"
            )
        self.values[row] = value.reshape(-1)
        self.known[row] = True


class Ragged(Rows[Tensor]):
    """Tensors of different lengths stored in one tensor; `ragged[i]` is a view of the i-th."""

    def __init__(self, lengths: Sequence[int], dtype: torch.dtype = torch.float32) -> None:
        self.bounds = array("q", [0])
        for length in lengths:
            self.bounds.append(self.bounds[-1] + length)
        self.flat = torch.zeros(self.bounds[-1], dtype=dtype)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def item(self, place: int) -> Tensor:
        return self.flat[self.bounds[place] : self.bounds[place + 1]]

    def __setitem__(self, index: int, value: Tensor) -> None:
        self[index].copy_(value)


class RowGroups(Sequence[Sequence[Any]]):
    """Rows of a table in groups of `each`, for example pairs of preference data. A slice is a view."""

    def __init__(self, table: TokenTable, each: int, over: range | None = None) -> None:
        self.rows, self.each = table, each
        self._over = range(len(table) // each) if over is None else over

    def __len__(self) -> int:
        return len(self._over)

    def __getitem__(self, index: Any) -> Any:
        over = self._over[index]
        if isinstance(over, range):
            return RowGroups(self.rows, self.each, over)
        return self.rows[over * self.each : (over + 1) * self.each]
