"""Rewards, lengths and failures of conversations with an environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean
from fgrl.measuring.statistics import Measured
from fgrl.registry import register
from fgrl.types import Turn


@register("environment")
class EnvironmentMetric(Comparison):
    """Numbers of conversations with an environment. `return`: the sum of the rewards of all turns; `turns`: the number
    of turns; the shares of conversations that reached their end (`terminated`), that were stopped before it
    (`truncated`), and in which the environment failed (`missing`: excluded from all other numbers); `errors`: the share
    of turns whose text made the environment raise an exception.
    """

    meanings = {
        "return": Meaning("rewards of the environment per conversation", "higher"),
        "turns": Meaning("turns per conversation"),
        "terminated": Meaning("share of conversations that come to their end"),
        "truncated": Meaning("share of conversations that are stopped before their end"),
        "errors": Meaning("share of turns that the environment cannot take", "lower"),
        "missing": Meaning("share of conversations in which the environment fails", "lower"),
        "info *": Meaning("{number} of the environment, per turn"),
    }
    counts_lost = True

    info: list[str] = []
    """Names of numbers in the environment's `info` to measure as well: their means over the turns that report them."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        known = [answer.turns if answer.lost is None else [] for answer in answers]

        def per_conversation(value: Callable[[Answer], float]) -> Measured:
            pairs = zip(answers, known, strict=True)
            return mean(answers, [value(answer) if turns else None for answer, turns in pairs])

        def per_turn(value: Callable[[Turn], float | None]) -> Measured:
            values = [[one for turn in turns if (one := value(turn)) is not None] for turns in known]
            return mean(answers, [fmean(own) if own else None for own in values], [len(own) for own in values])

        return {
            "return": per_conversation(lambda answer: math.fsum(turn.reward for turn in answer.turns)),
            "turns": per_conversation(lambda answer: len(answer.turns)),
            "terminated": per_conversation(lambda answer: answer.terminated),
            "truncated": per_conversation(lambda answer: not answer.terminated),
            "errors": per_turn(lambda turn: turn.error is not None),
            "missing": mean(answers, [answer.lost is not None for answer in answers]),
        } | {f"info {name}": per_turn(partial(_number, name)) for name in self.info}


def _number(name: str, turn: Turn) -> float | None:
    return turn.numbers.get(name)
