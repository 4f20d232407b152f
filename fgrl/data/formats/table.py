"""What the readers of tables in TRL's formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fgrl.data.formats.converter import BadRow, Columns, Converter, Row
from fgrl.data.rows import Rows
from fgrl.errors import DataError
from fgrl.types import Pair, Sample

Made = TypeVar("Made", Sample, Pair)


class Table(Rows):
    """Rows with columns in one of TRL's formats."""

    columns: Columns = Columns()
    """Which column holds what, where the usual names do not fit."""

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
