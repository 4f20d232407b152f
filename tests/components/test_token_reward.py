"""What the tokens of answers earn: sums and shares, and answers about which a reward says nothing."""

from __future__ import annotations

from typing import Any

import pytest
from answer_helpers import answer_of

from fgrl.base.errors import DataError
from fgrl.components.metrics.token_reward import TokenReward
from fgrl.measuring.answer import Answer


def answer(id: str, total: float | None, *values: float | None, reward: str = "critic") -> Answer:
    text = "".join("ab"[number % 2] for number in range(len(values)))
    offsets = [(at, at + 1) for at in range(len(values))]
    return answer_of(
        id, "p", text, list(text), offsets, True, rewards={reward: total}, token_rewards={reward: list(values)}
    )


def measured(*answers: Answer, **settings: Any) -> dict[str, Any]:
    numbers = TokenReward(**settings).measure({"policy": list(answers)})["token_reward"]["policy"]
    return {name: number["mean"] for name, number in numbers.items()}


def test_the_reward_and_the_shares_of_tokens() -> None:
    assert measured(answer("0", 1.0, 1.0, 1.0, None, -1.0), answer("1", -2.0, None, -1.0, 0.0, -1.0)) == {
        "critic": -0.5, "critic good": 2 / 8, "critic poor": 3 / 8
    }  # fmt: skip


def test_shares_are_of_tokens_not_means_of_answers() -> None:
    assert measured(answer("0", 1.0, 1.0), answer("1", 0.0, 0.0, 0.0, 0.0))["critic good"] == 1 / 4


def test_an_answer_without_a_critique_is_missing_and_one_without_quotes_is_not() -> None:
    assert measured(answer("0", 2.0, 1.0, 1.0), answer("1", None, None, None))["critic"] == 2.0
    assert measured(answer("0", 2.0, 1.0, 1.0), answer("1", 0.0, None, None)) == {
        "critic": 1.0, "critic good": 1 / 2, "critic poor": 0.0
    }  # fmt: skip
    assert measured(answer("0", None, None)) == {"critic": None, "critic good": None, "critic poor": None}


def test_a_reward_that_was_not_recorded_is_an_error() -> None:
    with pytest.raises(DataError, match="no reward 'other'; the evaluation recorded: critic"):
        measured(answer("0", 1.0, 1.0), rewards=["other"])


def test_differences_are_paired_by_prompt() -> None:
    before = [answer(str(number), 0.0, 0.0) for number in range(4)]
    after = [answer(str(number), 1.0, 1.0) for number in range(4)]
    difference = TokenReward().measure({"sft": before, "policy": after}, baseline="sft")["token_reward"]["differences"]
    assert difference["policy"]["critic"]["mean"] == 1.0
