"""Readers: where prompts, pairs or answers come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Any

from fgrl.errors import DataError
from fgrl.kinds.planning import Expected, Peek
from fgrl.registry import Component, kind, name_of
from fgrl.types import Pair, Sample


@kind("reader")
class Reader(Component, ABC):
    """Where prompts, pairs or answers come from."""

    @abstractmethod
    def read(self) -> Iterator[Sample]:
        """Samples in a fixed order. A missing column is a `DataError` that shows the first row."""

    def pairs(self) -> Iterator[Pair]:
        """Preference pairs; only readers of preference data have them."""
        raise DataError(
            f"the reader {name_of(self)[1]!r} has samples, not pairs: read a data set with `format: preference`, or the "
            "pairs of a `pair` stage with {name: pairs, of: ...}"
        )

    def expects(self, peek: Peek) -> Expected | None:
        """At most how much `read` gives, known without reading; None when that is not known."""
        return None

    def criteria_counts(self, peek: Peek | None = None) -> dict[str, Any]:
        """How many criteria of which kind the prompts have, for plans and summaries; {} when prompts have none, or it is not
        known.

        peek: read what lies on this machine; without it only what `read` has counted already.
        """
        return {}

    def placed(self) -> Collection[str]:
        """Fields that name a place whose contents `identity` has: where it lies does not count for the stage's key."""
        return ()

    def identity(self) -> dict[str, Any]:
        """What identifies the data, beyond the fields and the contents of `File` fields; part of the stage's key."""
        return {}
