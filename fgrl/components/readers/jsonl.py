"""Reader for a file of JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import PrivateAttr, model_validator

from fgrl.base.errors import DataError
from fgrl.data.formats.columns import Columns
from fgrl.data.formats.converter import Converter
from fgrl.data.formats.table_reader import TableReader
from fgrl.data.row import BadRow, Row
from fgrl.data.rubrics.untrusted import refuse_sandbox
from fgrl.data.text_file import numbered_lines, parse_json, parse_rows
from fgrl.registry import File, register
from fgrl.types import Pair, Sample, parse_line

R = TypeVar("R", Sample, Pair)


@register("jsonl")
class JsonLines(TableReader):
    """A file with one JSON object per line: our own samples and pairs, or columns in one of TRL's formats."""

    path: Annotated[str, File]
    """Path of the file, in UTF-8."""
    format: Literal["records", "preference", "prompts", "sft"] = "records"
    """Format of the lines. `records`: fgrl's own `Sample` (or `Pair`) records, as stages write them. Otherwise the
    content of the columns.
    """

    _line_numbers: list[int] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _columns_need_a_format(self) -> JsonLines:
        if self.format == "records" and self.columns != Columns():
            raise ValueError("columns: records have our own names; set format to preference, prompts or sft as well")
        return self

    def read(self) -> Iterator[Sample]:
        if self.format == "records":
            return self._records(Sample)
        return self.converted(self.format, Converter.sample)

    def pairs(self) -> Iterator[Pair]:
        if self.format == "records":
            return self._records(Pair)
        return self.converted_pairs(self.path, self.format)

    def first(self, count: int, most: int) -> list[Sample] | list[Pair]:
        is_known = self.format != "records" or (self.in_local_files(most) and not self._holds_pairs())
        return super().first(count, most) if is_known else []

    def rows(self) -> tuple[str, Sequence[Row]]:
        lines = numbered_lines(self.path)
        self._line_numbers = [number for number, _ in lines]
        if self.format == "records":
            return self.path, [{"line": line} for _number, line in lines]
        return self.path, parse_rows(lines, self.path)

    def place(self, where: str, number: int) -> str:
        return f"{where}:{self._line_numbers[number]}"

    def misfit(self, where: str, number: int, problem: BadRow) -> str:
        place = self.place(where, number)
        return str(problem) if str(problem).startswith(place) else f"{place}: {problem}"

    def _holds_pairs(self) -> bool:
        """Return True if the records are pairs, which is only known once the file is read."""
        with Path(self.path).open(encoding="utf-8-sig", errors="replace") as lines:
            return '"rejected"' in next((line for line in lines if line.strip()), "")

    def _records(self, record: type[R]) -> Iterator[R]:
        where, rows, numbers = self.opened()

        def parsed(row: Row, number: int) -> R:
            place = self.place(where, number)
            try:
                parse_json(row["line"], self.path, self._line_numbers[number])
                item = parse_line(
                    row["line"], record, place, "; for other columns set `format: prompts`, `sft` or `preference`"
                )
                if isinstance(item, Sample):
                    refuse_sandbox(item, place)
            except DataError as problem:
                raise BadRow(str(problem)) from None
            return self.with_system(item)

        convert = self.with_own_ids(where, parsed) if record is Sample else parsed
        return self.reported(where, rows, numbers, convert, "fits")
