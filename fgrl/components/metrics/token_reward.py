"""Rewards of answers, and the shares of tokens with positive and negative rewards."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.reward_numbers import OfRewards
from fgrl.measuring.statistics import Measured
from fgrl.registry import register


@register("token_reward")
class TokenReward(OfRewards):
    """Three numbers for each reward: `<reward>`, the reward of the whole response (of a critic and of functions that
    score tokens or spans: the total of the token rewards), and `<reward> good` and `<reward> poor`, the shares of
    tokens with a reward above and below 0.

    A response whose reward is missing is left out: a critique that failed is not a reward of 0.
    """

    purpose = "reward"
    meanings = {
        "* good": Meaning("share of tokens with a positive reward ({number})"),
        "* poor": Meaning("share of tokens with a negative reward ({number})"),
        "*": Meaning("mean reward of held-out answers ({number})", "higher"),
    }

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        rewards, tokens = self.recorded(answers, "rewards"), self.recorded(answers)
        lengths = [answer.n_tokens for answer in answers]
        result: dict[str, Measured] = {}
        for name, values in rewards.items():
            result[name] = mean(answers, values)
            for label, sign in (("good", 1), ("poor", -1)):
                shares = [
                    sum(sign * (reward or 0.0) > 0 for reward in row) / length if value is not None and length else None
                    for value, row, length in zip(values, tokens[name], lengths, strict=True)
                ]
                result[f"{name} {label}"] = mean(answers, shares, lengths)
        return result
