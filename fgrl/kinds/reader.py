"""Readers: sources of prompts, pairs or answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError, NotYet, Unavailable
from fgrl.kinds.planning import Expected, Peek, stated
from fgrl.registry import Component, kind, name_of, walk
from fgrl.types import Pair, Ref, Sample


@kind("reader")
class Reader(Component, ABC):
    """Reader: a source of prompts, pairs or answers."""

    @abstractmethod
    def read(self) -> Iterator[Sample]:
        """Yield samples in a fixed order. A missing column is a `DataError` that shows the first row."""

    def pairs(self) -> Iterator[Pair]:
        """Yield preference pairs; only readers of preference data have them."""
        raise DataError(
            f"the reader {name_of(self)[1]!r} has samples, not pairs: read a data set with `format: preference`, or the "
            "pairs of a `pair` stage with {name: pairs, of: ...}"
        )

    def first(self, count: int, most: int) -> list[Sample] | list[Pair]:
        """Return rows for a look before anything runs: all rows if they are in local files of at most `most` bytes
        together, else at most the first `count`, or none if these are not available locally.
        """
        return list(self.read()) if self.in_local_files(most) else []

    def in_local_files(self, most: int) -> bool:
        """Return True if all rows are in local files that are read at once and have at most `most` bytes."""
        parts = [self, *(value for _path, value in walk(self))]
        files = [part for part in parts if isinstance(part, Path)]
        if any(isinstance(part, Ref) or (isinstance(part, Reader) and not part.reads_at_once()) for part in parts):
            return False
        return bool(files) and sum(file.stat().st_size for file in files if file.is_file()) <= most

    def reads_at_once(self) -> bool:
        """Return True if local files are read without libraries that take seconds to load."""
        return True

    def criteria_counts(self, peek: Peek | None = None) -> dict[str, Any]:
        """Return the number of criteria of each kind in the prompts, for plans and summaries; {} if there are none, or
        if it is unknown. peek: also read data on this machine; without it, return only what `read` has counted already.
        """
        return {}

    def placed(self) -> Collection[str]:
        """Return the fields that name a place whose contents `identity` covers: the place does not count for the
        stage's key.
        """
        return ()

    def identity(self) -> dict[str, Any]:
        """Return the identity of the data beyond the fields and the contents of `File` fields; part of the stage's
        key.
        """
        return {}


def expected(reader: Reader, peek: Peek) -> Expected | None:
    """Return the bound that a reader states, or else the number of its records; None if they cannot be read now."""
    stating: Expected | None = stated(reader, "expects", peek)
    if stating is not None:
        return stating
    try:
        reader.setup(peek)
        responses = [len(sample.responses) for sample in reader.read()]
    except (DataError, NotYet, Unavailable):
        return None
    return Expected(len(responses), max(responses, default=0))
