"""Base class of readers of tables in TRL's formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from fgrl.base.errors import DataError
from fgrl.data.formats.columns import Columns, Format
from fgrl.data.formats.converter import Converter
from fgrl.data.row import BadRow, Row
from fgrl.data.row_reader import RowReader
from fgrl.data.system_prompt import SystemPrompt
from fgrl.data.text_file import first_rows
from fgrl.types import Pair, Sample

Record = TypeVar("Record", Sample, Pair)


class TableReader(RowReader, SystemPrompt):
    """Reader of rows with columns in one of TRL's formats, which a field `format` names."""

    columns: Columns = Columns()
    """Names of the columns, if they are not the usual names."""

    def first(self, count: int, most: int) -> list[Sample] | list[Pair]:
        form: Format = vars(self)["format"]
        if self.in_local_files(most):
            return list(self.pairs()) if form == "preference" else list(self.read())
        where = (vars(self).get("files") or [vars(self)["path"]])[0]
        rows = first_rows(Path(where), count, most, vars(self)["path"])
        if not rows:
            return []
        converter = Converter(where, form, self.columns, rows[0])
        convert: Callable[[Row, int], Any] = converter.pair if form == "preference" else converter.sample
        found: list[Any] = []
        try:
            for number, row in enumerate(rows):
                found.append(convert(row, number))
        except BadRow as problem:
            raise DataError(f"{where}: row {len(found) + 1}: {problem}") from None
        return found

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
