"""The tasks of the credit benchmark know their words, and every distribution of credit keeps an answer's value."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import scratch_registry
import torch

from fgrl.kinds import OnlineAlgorithm
from fgrl.registry import build
from fgrl.types import Rewards, Rollout, Sample

FOLDER = Path(__file__).parents[2] / "benchmarks" / "credit"
NAMES = ("opposites", "sums", "facts", "code", "brackets", "banned")
CHANGES = (
    {}, {"credit": "even"}, {"credit": "random"}, {"credit": "wrong"}, {"drop": 0.5}, {"flip": 0.5}, {"invent": 0.5},
    {"shift": 2}, {"smear": 3}, {"drop": 0.3, "flip": 0.3, "invent": 0.2, "shift": -1, "smear": 2},
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _importable():
    sys.path.insert(0, str(FOLDER))
    with scratch_registry.scratch():
        yield importlib.import_module("credit_reward")
    sys.path.remove(str(FOLDER))


def tasks():
    return importlib.import_module("credit_tasks")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("parts", "fillers"), [(8, 2), (3, 0), (1, 5)])
def test_right_answers_are_right_and_fillers_irrelevant(name: str, parts: int, fillers: int) -> None:
    task = tasks().task(name, parts, fillers)
    for number in range(20):
        prompt = task.prompt(number)
        answer = task.write(prompt, 1.0, random.Random(number))
        expected = [*[0.0] * fillers, *[1.0] * task.words_that_matter] * parts
        assert len(answer.split()) == task.length == len(prompt.split()) - 1
        assert task.judge(prompt, answer) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_writer_is_wrong_as_often_as_it_should(name: str) -> None:
    task = tasks().task(name, 8, 2)
    judged = [
        value
        for number in range(200)
        for value in task.judge(task.prompt(number), task.write(task.prompt(number), 0.4, random.Random(number)))
        if value
    ]
    share = sum(value > 0 for value in judged) / len(judged)
    assert share == pytest.approx(0.7 if name == "facts" else 0.4, abs=0.05)  # names of facts are always right


def test_a_wrong_word_is_found_where_it_stands() -> None:
    task = tasks().task("opposites", 2, 1)
    assert task.judge("opposites so hot so big", "so cold so cold") == [0, 1, 0, -1]
    assert task.judge("opposites so hot so big", "cold so so small") == [0, -1, 0, 1]
    assert task.judge("opposites so hot so big", "so cold") == [0, 1]


def test_a_step_follows_from_the_sum_that_was_written() -> None:
    task = tasks().task("sums", 4, 0)
    assert task.judge("sums 1 2 3 9", "1 3 5 4") == [1, 1, -1, 1]


def test_prompts_of_different_splits_are_different() -> None:
    module = tasks()
    found = {split: set(module.numbers(split, 500)) for split in module.SPLITS}
    assert all(len(numbers) == 500 for numbers in found.values())
    assert len(set.union(*found.values())) == 1500


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_worth_the_same_however_it_is_distributed(name: str, changes: dict) -> None:
    world = importlib.import_module("credit_reward")
    reward = world.TaskCredit(task=name, **changes)
    task = tasks().task(name, 8, 2)
    for number in range(10):
        judged = task.judge(task.prompt(number), task.write(task.prompt(number), 0.5, random.Random(number)))
        given = reward.credited(judged, random.Random(number))
        assert sum(given) == pytest.approx(sum(judged))
        assert given == reward.credited(judged, random.Random(number))
        if not changes:
            assert given == judged


def test_each_mistake_changes_what_it_names() -> None:
    world = importlib.import_module("credit_reward")
    judged = [0.0, 1.0, 0.0, -1.0, 0.0, 0.0]

    def given(**changes):
        return world.TaskCredit(task="sums", **changes).made_worse(judged, random.Random(0))

    assert given(drop=1.0) == [0.0] * 6
    assert given(flip=1.0) == [0.0, -1.0, 0.0, 1.0, 0.0, 0.0]
    assert given(shift=2) == [0.0, 0.0, 0.0, 1.0, 0.0, -1.0]
    assert given(shift=3) == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert given(smear=2) == [0.5, 0.5, -0.5, -0.5, 0.0, 0.0]
    invented = given(invent=1.0)
    assert [abs(value) for value in invented] == [1.0] * 6
    assert (invented[1], invented[3]) == (1.0, -1.0)
    assert sum(world.TaskCredit(task="sums", bias=0.5).credited(judged, random.Random(0))) == pytest.approx(3.0)
    wrong = world.TaskCredit(task="sums", credit="wrong").credited(judged, random.Random(0))
    assert wrong[1] == wrong[3] == 0.0


def test_only_the_oracle_can_be_made_worse() -> None:
    world = importlib.import_module("credit_reward")
    with pytest.raises(ValueError, match="credit: oracle"):
        world.TaskCredit(task="sums", credit="even", drop=0.5)


def test_the_baseline_of_a_token_is_what_the_others_earn_at_its_place() -> None:
    importlib.import_module("credit_estimator")
    draw = np.random.default_rng(0)
    lengths, group = [5, 3, 5, 4, 2], [7, 7, 7, 2, 2]
    token = draw.normal(size=(5, 5))
    mask = np.arange(5) < np.array(lengths)[:, None]
    expected = np.zeros((5, 5))
    for i in range(5):
        others = [j for j in range(5) if j != i and group[j] == group[i]]
        for t in range(lengths[i]):
            expected[i, t] = token[i, t] - np.mean([token[j, t] * mask[j, t] for j in others])
    tensor = torch.tensor(mask)
    rollout = Rollout(
        prompt_ids=torch.zeros(5, 1, dtype=torch.long), prompt_mask=torch.ones(5, 1, dtype=torch.bool),
        response_ids=torch.zeros(5, 5, dtype=torch.long), mask=tensor, eos=torch.zeros(5, 5, dtype=torch.bool),
        group=torch.tensor(group), samples=[Sample(id=str(i), prompt="") for i in range(5)], texts=[""] * 5,
    )  # fmt: skip
    values = torch.tensor(np.where(mask, token, 9.0), dtype=torch.float32)
    rewards = Rewards(response=values.sum(dim=1), token=values, credit_mask=tensor)
    found = build(OnlineAlgorithm, "token_group").advantages(rollout, rewards).advantage
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
