"""An environment for the recipes over turns: a number to guess, with answers that tell whether it is higher or
lower.
"""

from __future__ import annotations

import re

from pydantic import Field

from fgrl import DataError, Environment, Episode, register


class Guessing(Episode):
    """Conversation about one number. `info` has the score of the state: the share of the numbers that are ruled out."""

    def __init__(self, number, most):
        self.number, self.most, self.low, self.high = number, most, 1, most

    def step(self, text):
        found = re.search(r"\d{1,9}", text)
        if found is None:
            return "Answer with a number.", -0.1, False, False, {}
        guess = int(found[0])
        if guess == self.number:
            return "That is the number.", 1.0, True, False, {"score": 1.0}
        if guess < self.number:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        score = 1.0 - (self.high - self.low + 1) / self.most
        return f"{guess} is too {'low' if guess < self.number else 'high'}.", 0.0, False, False, {"score": score}


@register("number_game")
class NumberGame(Environment):
    """Environment of a number to guess, the reference of the prompt. The reward is 1 for the right guess, -0.1 for a
    turn without a number.
    """

    most: int = Field(16, ge=1)
    """Largest number: the numbers are from 1 to this one."""

    def begin(self, sample, seed):
        try:
            return Guessing(int(sample.reference), self.most)
        except (TypeError, ValueError):
            raise DataError(f"prompt {sample.id}: the reference is to be the number to guess") from None
