"""What the readers of tables in TRL's formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from fgrl.base.errors import DataError
from fgrl.data.formats.columns import Columns, Format
from fgrl.data.formats.converter import Converter
from fgrl.data.row import Row
from fgrl.data.row_reader import RowReader
from fgrl.data.system_prompt import SystemPrompt
from fgrl.types import Pair, Sample

Record = TypeVar("Record", Sample, Pair)


class TableReader(RowReader, SystemPrompt):
    """Rows with columns in one of TRL's formats."""

    columns: Columns = Columns()
    """Which column holds what, where the usual names do not fit."""

    def converted_pairs(self, path: str, form: str) -> Iterator[Pair]:
        """Return the chosen rows as pairs. Raises `DataError` for a format without pairs."""
        if form != "preference":
            raise DataError(f"{path}: `format: {form}` has no pairs: set `format: preference`")
        return self.converted("preference", Converter.pair)

    def converted(self, form: Format, convert: Callable[[Converter, Row, int], Record]) -> Iterator[Record]:
        """Yield the chosen rows, each converted."""
        where, rows, numbers = self.opened()
        converter = Converter(where, form, self.columns, rows[0])

        def record(row: Row, number: int) -> Record:
            return self.with_system(convert(converter, row, number))

        several = form == "preference"  # of one prompt
        yield from self.reported(where, rows, numbers, record if several else self.with_own_ids(where, record), "fits")
