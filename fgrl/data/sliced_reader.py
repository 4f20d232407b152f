"""Base class of every reader: the order of its rows, and the part of them that it reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.kinds import Expected, Peek, Reader
from fgrl.types import Ref


class SlicedReader(Reader):
    """Reader of a part of the rows: they are shuffled (if `shuffle_seed` is set), then the first `skip` are left out,
    and `limit` are read.

    So `limit: 400` and `skip: 400` with one `shuffle_seed` are two sets without a row in common: one to train on, one
    held out.
    """

    shuffle_seed: int | None = None
    """Random seed of the shuffle; null keeps the order of the rows."""
    skip: int = Field(0, ge=0)
    """Number of rows that are skipped."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of rows that are read; null reads all. Fewer rows than this are no error."""

    def expects(self, peek: Peek) -> Expected | None:
        return None if self.limit is None else Expected(self.limit)

    def say(self, text: str) -> None:
        """Print one line for the user; before `setup`, print nothing."""
        if self._run is not None:
            self._run.say(text)

    def product(self, ref: Ref[Any]) -> Path:
        """Return the product folder of another stage."""
        assert self._run is not None, "setup(run) comes first"
        return self._run.path(ref)

    def order(self, total: int) -> Sequence[int]:
        """Return the numbers of all rows in the order in which they are read. total: number of rows."""
        if self.shuffle_seed is None:
            return range(total)
        rows = list(range(total))
        random.Random(self.shuffle_seed).shuffle(rows)
        return rows

    def chosen(self, total: int, where: str) -> Sequence[int]:
        """Return the numbers of the rows to read, in order. Raises `DataError` if there are none.

        total: number of rows. where: name of the data in the message.
        """
        rows = self.order(total)[self.skip : None if self.limit is None else self.skip + self.limit]
        if not rows:
            raise DataError(
                f"{where}: `skip: {self.skip}` leaves none of {total} rows" if total else f"{where}: no rows"
            )
        return rows
