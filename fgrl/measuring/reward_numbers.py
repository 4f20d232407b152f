"""Common parts of metrics on the rewards that an evaluation recorded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison


class OfRewards(Comparison):
    """Numbers of rewards, by the rewards' names."""

    rewards: list[str] | None = Field(None, min_length=1)
    """Names of the rewards in the evaluation; null: all that it recorded."""

    def check_rewards(self, names: Collection[str]) -> None:
        missing = [name for name in self.rewards or () if name not in names]
        if missing:
            known = ", ".join(names) or "none"
            raise ValueError(f"{self.called} reads the reward {missing[0]!r}; the rewards of this evaluation: {known}")
        if not names:
            raise ValueError(f"{self.called} reads token rewards, and this evaluation has no `rewards`: name one there")

    def recorded(self, answers: Sequence[Answer], column: str = "token_rewards") -> dict[str, list[Any]]:
        """Return a column of the answers, by reward; empty if all answers were given as text.

        Raises `DataError` if an answer lacks a reward, or if the evaluation recorded none.
        """
        columns: list[dict[str, Any]] = [getattr(answer, column) for answer in answers]
        if answers and all(answer.given for answer in answers):
            return {}  # no tokens, no rewards
        names = self.rewards or list(dict.fromkeys(name for own in columns for name in own))
        if not names and answers:
            what = column.replace("_", " ")
            raise DataError(f"{self.called}: the evaluation recorded no {what}; name rewards under its `rewards`")
        for name in names:
            without = next((own for own in columns if name not in own), None)
            if without is not None:
                known = ", ".join(without) or "none"
                raise DataError(f"{self.called}: the answers have no reward {name!r}; the evaluation recorded: {known}")
        return {name: [own[name] for own in columns] for name in names}
