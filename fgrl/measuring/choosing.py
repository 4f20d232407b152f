"""Choice of one of several models by a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from pydantic import Field

from fgrl.base.errors import DataError, UsageError
from fgrl.measuring.number_names import StageNumber, pick
from fgrl.registry import Settings

T = TypeVar("T")


class Choice(Settings):
    """Number that decides between models."""

    number: str = Field(min_length=1)
    """Name of the number as the log or the table shows it, for example `rubric.csr`; an unambiguous part of it is
    enough.
    """
    goal: Literal["max", "min"] = "max"
    """Direction of improvement: larger values are better (`max`), or smaller values (`min`)."""

    def among(self, known: Iterable[StageNumber]) -> StageNumber:
        """Return the measured number that the name refers to. Raises `DataError` if there is none, or more than one."""
        try:
            return pick(list(known), self.number)
        except UsageError as problem:
            raise DataError(f"best.number: {problem}") from None

    def best_of(self, values: Mapping[T, float | None]) -> T | None:
        """Return the key of the best value, the first one of equals. A missing value is never the best; None if all are
        missing.
        """
        known = {key: value for key, value in values.items() if value is not None}
        if not known:
            return None
        return (max if self.goal == "max" else min)(known, key=lambda key: known[key])
