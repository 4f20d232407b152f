"""Advantages by turn: against a derivation in numpy, and their means over all groups of a small world against its true gradient."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scratch_registry import scratch_imports

from fgrl.components.algorithms.turn_rloo import TurnRLOO
from fgrl.registry import build
from fgrl.types import Rewards, Rollout, Sample

Talks = list[tuple[int, list[list[float]]]]
"""Group and rewards of conversations: of each token of each turn."""


@pytest.fixture(scope="module")
def bias() -> Iterator[Any]:
    folder = str(Path(__file__).parents[3] / "benchmarks")
    sys.path.insert(0, folder)
    with scratch_imports():
        yield importlib.import_module("turn_credit_bias")
    sys.path.remove(folder)


def played(talks: Talks) -> tuple[Rollout, Rewards]:
    """Conversations in which the environment writes two tokens after each turn but the last."""
    rows = [
        [(number, reward) for number, turn in enumerate(turns) for reward in [*turn, None, None]][:-2]
        for _, turns in talks
    ]
    width = max(map(len, rows))
    mask, turn, token = (
        torch.zeros(len(rows), width).bool(),
        torch.full((len(rows), width), -1),
        torch.zeros(len(rows), width),
    )
    for row, tokens in enumerate(rows):
        mask[row, : len(tokens)] = True
        for place, (number, reward) in enumerate(tokens):
            token[row, place] = 100.0 if reward is None else reward
            turn[row, place] = -1 if reward is None else number
    ids = torch.zeros(mask.shape, dtype=torch.long)
    rollout = Rollout(
        ids[:, :1], torch.ones(len(rows), 1).bool(), ids, mask, torch.zeros_like(mask), turn=turn, texts=[""] * len(rows),
        group=torch.tensor([group for group, _ in talks]), samples=[Sample(id=str(group), prompt="") for group, _ in talks],
    )  # fmt: skip
    return rollout, Rewards(torch.where(rollout.drawn, token, 0.0).sum(dim=1), token, rollout.drawn)


def by_hand(talks: Talks, row: int, k: int) -> float:
    """A = G - b, word for word."""
    group, turns = talks[row]
    to_come = {
        other: [sum(sum(turn, start=0.0) for turn in theirs[later:]) for later in range(len(theirs))]
        for other, (number, theirs) in enumerate(talks)
        if number == group
    }
    others = [other for other in to_come if other != row]
    reached = [to_come[other][k] for other in others if len(to_come[other]) > k]
    if reached:
        return float(to_come[row][k] - np.mean(reached))
    whole = float(np.mean([to_come[other][0] for other in others])) if others else 0.0
    return float(to_come[row][k] - (whole - sum(sum(turn) for turn in turns[:k])))


numbers = st.floats(-3, 3, width=32)
turns_of = st.lists(st.lists(numbers, min_size=1, max_size=3), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.integers(0, 2), turns_of), min_size=1, max_size=8))
def test_advantages_are_those_of_the_derivation(talks: Talks) -> None:
    rollout, rewards = played(talks)
    found = TurnRLOO().advantages(rollout, rewards)
    assert found.trained is None
    assert found.keep is None
    for row, (_group, turns) in enumerate(talks):
        of_row = found.advantage[row]
        for k in range(len(turns)):
            assert of_row[rollout.turn_ids[row] == k].tolist() == pytest.approx(
                [by_hand(talks, row, k)] * len(turns[k]), abs=1e-4
            )
        assert not of_row[~rollout.drawn[row]].any(), "what the environment wrote has no credit"


@given(st.lists(st.tuples(st.integers(0, 2), turns_of), min_size=2, max_size=8))
def test_whole_responses_are_compared_where_that_is_wanted(talks: Talks) -> None:
    rollout, rewards = played(talks)
    found = TurnRLOO(baseline="response").advantages(rollout, rewards).advantage
    returns = {row: float(sum(sum(turn) for turn in turns)) for row, (_, turns) in enumerate(talks)}
    for row, (group, _) in enumerate(talks):
        others = [returns[other] for other, (number, _) in enumerate(talks) if number == group and other != row]
        wanted = returns[row] - (np.mean(others) if others else 0.0)
        assert found[row][rollout.drawn[row]].tolist() == pytest.approx(
            [wanted] * int(rollout.drawn[row].sum()), abs=1e-4
        )


def test_equal_returns_teach_nothing_and_a_turn_reached_alone_teaches() -> None:
    talks: Talks = [(0, [[0.1], [0.2]])] * 3 + [(1, [[0.1]]), (1, [[0.1], [0.7]])]
    rollout, rewards = played(talks)
    found = TurnRLOO(skip_zero_variance=True).advantages(rollout, rewards)
    assert not found.advantage[:3].any(), "exactly"
    assert found.keep is not None
    assert found.keep.tolist() == [False] * 3 + [True] * 2
    assert found.metrics["idle"] == pytest.approx(3 / 5)
    assert found.metrics["alone"] == pytest.approx(1 / 9)
    assert found.advantage[4][rollout.turn_ids[4] == 1].tolist() == pytest.approx([0.7])  # 0.7 - (0.1 - 0.1)


def test_responses_without_a_reward_take_no_part() -> None:
    talks: Talks = [(0, [[1.0], [2.0]]), (0, [[5.0], [-1.0]]), (0, [[0.5]])]
    rollout, rewards = played(talks)
    lost = replace(rewards, response=torch.tensor([3.0, float("nan"), 0.5]), token=rewards.token.clone())
    lost.token[1] = float("nan")
    found = TurnRLOO().advantages(rollout, lost).advantage
    wanted = TurnRLOO().advantages(*played([talks[0], talks[2]])).advantage
    assert found[[0, 2]][:, : wanted.shape[1]].tolist() == wanted.tolist()
    assert not found[1].any()


def test_its_loss_is_a_sum_unless_something_else_is_said() -> None:
    made: Any = build("online_algorithm", "turn_rloo")
    assert made.aggregate == "sum"
    assert made.reads_token_rewards


SHARES = {
    "turn_rloo": (1.0, 1.0),
    "turn_rloo, baseline: response": (1.0, 1.0),
    "turn_rloo, aggregate: token_mean": (0.72, 0.69),
    "turn_rloo, aggregate: seq_mean": (0.655, 0.50),
    "0 where a turn was reached alone": (1.0, 1 - 0.69**3),
    "own return in the mean": (0.75, 0.38),
    "mean and standard deviation by turn": (-0.77, 0.58),
    # what follows a turn is centred away, so that stopping is compared with the first reward alone: (-0.1 - 0.6) / (0.47 - 0.6)
    "centred rewards of turns, added up": (0.75 * 0.7 / 0.13, 0.38),
    "grpo, aggregate: seq_mean": (-0.50, 1.14),
    "mt_grpo": (-0.74, 1.15),
    "gigpo": (-0.93, 1.43),
}
"""Mean gradients of both logits over the true ones, in groups of four."""


@pytest.mark.parametrize("name", SHARES)
def test_the_mean_of_all_groups_is_the_known_share_of_the_true_gradient(name: str, bias: Any) -> None:
    mean, spread = bias.measured(bias.ESTIMATORS[name], 4)
    exact = 1e-6 if name.startswith("turn_rloo") and SHARES[name] == (1.0, 1.0) else 0.0051
    assert mean.tolist() == pytest.approx(SHARES[name], abs=exact)
    assert bool((spread > 0.1).all())


@pytest.mark.parametrize("size", [2, 3, 7])
def test_the_world_is_enumerated_completely(size: int, bias: Any) -> None:
    chances, _gradients = zip(*bias.gradients(TurnRLOO(), bias.Policy(), size), strict=True)
    assert sum(chances) == pytest.approx(1.0)
    # the return is 0.6 (1 - p) + p (q - 0.1)
    p, q = bias.CONTINUE, bias.RIGHT
    wanted = [(q - 0.1 - 0.6) * p * (1 - p), p * q * (1 - q)]
    assert bias.truth(bias.Policy()).tolist() == pytest.approx(wanted)


def test_variances_of_both_baselines_by_hand(bias: Any) -> None:
    """In numpy, over all ordered groups of three: another way to the same numbers."""
    p, q = bias.CONTINUE, bias.RIGHT
    ends = [(1 - p, [0.6], [0]), (p * q, [-0.1, 1.0], [1, 1]), (p * (1 - q), [-0.1, 0.0], [1, 0])]
    found: dict[str, list[tuple[float, np.ndarray]]] = {"turn": [], "response": []}
    for group in np.ndindex(3, 3, 3):
        chance = float(np.prod([ends[each][0] for each in group]))
        talks: Talks = [(0, [[reward] for reward in ends[each][1]]) for each in group]
        for baseline, kept in found.items():
            gradient = np.zeros(2)
            for row, each in enumerate(group):
                returns = [sum(map(sum, turns)) for _, turns in talks]
                whole = returns[row] - (sum(returns) - returns[row]) / 2
                for k, choice in enumerate(ends[each][2]):
                    advantage = by_hand(talks, row, k) if baseline == "turn" else whole
                    gradient[k] += advantage * (choice - (p, q)[k]) / 3
            kept.append((chance, gradient))
    truth = np.array([(q - 0.7) * p * (1 - p), p * q * (1 - q)])
    for baseline, kept in found.items():
        mean = sum(chance * gradient for chance, gradient in kept)
        spread = np.sqrt(sum(chance * (gradient - mean) ** 2 for chance, gradient in kept))
        measured = bias.measured(TurnRLOO(baseline=baseline), 3)
        assert measured[0].tolist() == pytest.approx(mean / truth, abs=1e-6)
        assert measured[1].tolist() == pytest.approx(spread / np.abs(truth), abs=1e-6)
