"""Readers: where prompts, pairs or answers come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Any

from fgrl.base.errors import DataError
from fgrl.kinds.planning import Peek
from fgrl.registry import Component, kind, name_of
from fgrl.types import Pair, Sample


@kind("reader")
class Reader(Component, ABC):
    """Where prompts, pairs or answers come from."""

    @abstractmethod
    def read(self) -> Iterator[Sample]:
        """Return samples in a fixed order. A missing column is a `DataError` that shows the first row."""

    def pairs(self) -> Iterator[Pair]:
        """Return preference pairs; only readers of preference data have them."""
        raise DataError(
            f"the reader {name_of(self)[1]!r} has samples, not pairs: read a data set with `format: preference`, or the "
            "pairs of a `pair` stage with {name: pairs, of: ...}"
        )

    def criteria_counts(self, peek: Peek | None = None) -> dict[str, Any]:
        """Return how many criteria of which kind the prompts have, for plans and summaries; {}: none, or unknown.

        peek: read what lies on this machine; without it only what `read` has counted already.
        """
        return {}

    def placed(self) -> Collection[str]:
        """Return the fields that name a place whose contents `identity` has: the place does not count for the stage's
        key.
        """
        return ()

    def identity(self) -> dict[str, Any]:
        """Return what identifies the data beyond the fields and the contents of `File` fields; part of the stage's
        key.
        """
        return {}
