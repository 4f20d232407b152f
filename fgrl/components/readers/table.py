"""What the readers of rows with columns share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field

from fgrl.components.readers.columns import BadRow, Columns, Converter, Row
from fgrl.components.readers.sliced import Sliced
from fgrl.types import DataError, Pair, Sample

Made = TypeVar("Made", Sample, Pair)


class Table(Sliced):
    """Rows with columns."""

    columns: Columns = Columns()
    """Which column holds what, where the usual names do not fit."""
    bad_rows: Literal["error", "drop"] = "error"
    """A row that does not fit (an answer that is no text, two answers that are the same, ...): stop, or leave it out
    and say how many were."""
    expect_rows: int | None = Field(None, ge=1)
    """Stop unless the data has this many rows, before `skip` and `limit`; null does not check."""

    @abstractmethod
    def rows(self) -> tuple[str, Sequence[Row]]:
        """What to call the data in messages, and its rows. Raises `DataError`."""

    def at(self, rows: Any, numbers: Sequence[int]) -> Iterator[Row]:
        """The rows of these numbers."""
        return (rows[number] for number in numbers)

    def count(self, rows: int, where: str) -> None:
        """Raise `DataError` when there are not as many rows as expected."""
        if self.expect_rows is not None and rows != self.expect_rows:
            raise DataError(
                f"{where}: {rows} rows, but the recipe expects {self.expect_rows}: has the data changed? (pin its "
                "version, or correct `expect_rows`)"
            )

    def converted(self, form: Any, convert: Callable[[Converter, Row, int], Made]) -> Iterator[Made]:
        """The chosen rows, each converted."""
        where, rows = self.rows()
        self.count(len(rows), where)
        numbers = self.chosen(len(rows), where)
        converter = Converter(where, form, self.columns, rows[0])
        dropped: list[str] = []
        for number, row in zip(numbers, self.at(rows, numbers), strict=True):
            try:
                made = convert(converter, row, number)
            except BadRow as problem:
                if self.bad_rows == "error":
                    raise DataError(
                        f"{where}: row {number}: {problem} (`bad_rows: drop` leaves such rows out and counts them)"
                    ) from None
                dropped.append(f"row {number}: {problem}")
                continue
            yield made
        if dropped:
            self.say(f"{where}: left out {len(dropped)} of {len(numbers)} rows; the first: {dropped[0]}")
        if len(dropped) == len(numbers):
            raise DataError(f"{where}: none of {len(numbers)} rows fits; the first: {dropped[0]}")
