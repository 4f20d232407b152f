"""Base classes of readers of rows: the expected number of rows, and the treatment of rows that do not fit."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.data.mistakes import Mistakes
from fgrl.data.row import BadRow, Ids, LeftOut, Row, preview
from fgrl.data.sliced_reader import SlicedReader
from fgrl.kinds import Expected, Peek
from fgrl.registry import name_of
from fgrl.types import Pair, Sample

R = TypeVar("R")
Named = TypeVar("Named", Sample, Pair)


class CountedReader(SlicedReader):
    """Reader of rows whose number a recipe can pin."""

    expect_rows: int | None = Field(None, ge=1)
    """Expected number of rows, before `skip` and `limit`: the stage stops if the data has another number. Null does not
    check.
    """

    def expects(self, peek: Peek) -> Expected | None:
        if self.expect_rows is not None:
            return Expected(self.expect_rows).after(self.skip, self.limit)
        return super().expects(peek)

    def count(self, rows: int, where: str) -> None:
        """Raise `DataError` if the number of rows is not the expected one."""
        if self.expect_rows is not None and rows != self.expect_rows:
            raise DataError(
                f"{where}: {rows} rows, but the recipe expects {self.expect_rows}: has the data changed? (pin its "
                "version, or correct `expect_rows`)"
            )


class RowReader(CountedReader):
    """Reader of rows with columns."""

    bad_rows: Literal["error", "drop"] = "error"
    """Treatment of a row that does not fit (an answer that is no text, two answers that are the same, ...): stop, or
    leave the row out and report the number of such rows.
    """

    @abstractmethod
    def rows(self) -> tuple[str, Sequence[Row]]:
        """Return the name of the data in messages, and its rows. Raises `DataError`."""

    def at(self, rows: Any, numbers: Sequence[int]) -> Iterator[Row]:
        """Yield the rows of these numbers."""
        return (rows[number] for number in numbers)

    def misfit(self, where: str, number: int, problem: BadRow) -> str:
        """Return a message about a row that does not fit."""
        return f"{self.place(where, number)}: {problem}"

    def place(self, where: str, number: int) -> str:
        """Return the name of a row in messages. Rows are counted from 1 there, like the lines of a file."""
        return f"{where}: row {number + 1}"

    def records(
        self, where: str, rows: Any, numbers: Sequence[int], convert: Callable[[Row, int], R], omissions: Omissions
    ) -> Iterator[R]:
        """Yield the results of `convert` for the rows of these numbers. Rows for which it raises `LeftOut` or `BadRow`
        are counted.

        Unless bad rows are dropped, the first one ends the records: the rows after it are only checked, and a
        `DataError` names all that do not fit.
        """
        mistakes = Mistakes(" (`bad_rows: drop` leaves such rows out and counts them)")
        for number, row in zip(numbers, self.at(rows, numbers), strict=True):
            if not mistakes.still_looking():
                break
            try:
                record = convert(row, number)
            except LeftOut as reason:
                omissions.add(str(reason))
            except BadRow as problem:
                if self.bad_rows == "error":
                    mistakes.add(self.misfit(where, number, problem))
                else:
                    omissions.add_misfit(self.misfit(where, number, problem))
            else:
                if not mistakes:
                    yield record
        if mistakes:
            raise mistakes.error()

    def opened(self) -> tuple[str, Sequence[Row], Sequence[int]]:
        """Return `rows()`, and the numbers of the chosen rows. Raises `DataError`, also if none is left."""
        where, rows = self.rows()
        self.count(len(rows), where)
        return where, rows, self.chosen(len(rows), where)

    def with_own_ids(self, where: str, convert: Callable[[Row, int], Named]) -> Callable[[Row, int], Named]:
        """Return `convert` with a check: it raises `BadRow` for a second record with the same id."""
        ids = Ids()

        def checked(row: Row, number: int) -> Named:
            record = convert(row, number)
            ids.add(record.id, self.place(where, number))
            return record

        return checked

    def reported(
        self, where: str, rows: Any, numbers: Sequence[int], convert: Callable[[Row, int], R], wanted: str
    ) -> Iterator[R]:
        """Yield `records`, then report what was left out. wanted: end of "none of 3 rows ...", the error if nothing is
        left.
        """
        omissions, read = Omissions(), 0
        for read, record in enumerate(self.records(where, rows, numbers, convert, omissions), start=1):  # noqa: B007
            yield record
        if omissions:
            self.say(f"{where}: {omissions.summary(len(numbers))}")
        if not read:
            raise DataError(f"{where}: none of {len(numbers)} rows {wanted}{omissions.first_misfit}")

    def no_column(self, where: str, first: Row, what: str, role: str, meaning: str) -> DataError:
        """Return the error about a column that does not exist. meaning: meaning of `columns.{role}`, the field that
        names the column.
        """
        return DataError(
            f"{where}: {what}, which reader `{name_of(self)[1]}` needs. Set `columns.{role}` to {meaning}; dots reach into "
            f"nested columns.\nIts first row:\n{preview(first)}"
        )


@dataclass
class Omissions:
    """Rows that were left out, by reason."""

    counts: Counter[str] = field(default_factory=Counter)
    first_misfit: str = ""
    """The first row that does not fit, for messages that end with it; empty if all fit."""

    def add(self, reason: str) -> None:
        self.counts[reason] += 1

    def add_misfit(self, misfit: str) -> None:
        """Count a row that does not fit. misfit: the row in words."""
        self.counts["that do not fit"] += 1
        self.first_misfit = self.first_misfit or f"; the first that does not fit: {misfit}"

    def summary(self, looked: int) -> str:
        """Return the counts in words. looked: number of rows that were read."""
        return f"left out {self.counts.total():,} of {looked:,} rows: {self}{self.first_misfit}"

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())
