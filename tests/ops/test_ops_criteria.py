"""Advantages of groups and of criteria, against loops in numpy that know nothing of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.base import ops

NAN = float("nan")
PARTITIONS = ("intra_sample", "inter_sample", "none")


# -- by hand -----------------------------------------------------------------------------------------------------------


def slow_group(rewards: list[float], group: list[int]) -> np.ndarray:
    found = np.zeros(len(rewards))
    for i, reward in enumerate(rewards):
        mine = np.array([r for r, g in zip(rewards, group, strict=True) if g == group[i]])
        if len(mine) > 1 and mine.min() != mine.max():
            found[i] = (reward - mine.mean()) / (mine.std(ddof=1) + 1e-6)
    return found


def slow_z(value: float, others: list[float]) -> float:
    if min(others) == max(others):
        return 0.0
    return (value - np.mean(others)) / (np.std(others) + 1e-6)


def slow_tokens(
    rewards: list[list[list[float] | None]], group: list[int], partition: str, union: bool = False
) -> list[list[float]]:
    """rewards[i][k]: token rewards of criterion k in response i, or None; lists are as long as their response."""
    if union:
        means: list[list[list[float] | None]] = []
        for response in rewards:
            told = [one for one in response if one is not None]
            means.append([[sum(at) / len(at) for at in zip(*told, strict=True)] if told else None])
        return slow_tokens(means, group, partition)
    lengths = [max((len(one) for one in response if one is not None), default=0) for response in rewards]
    found = [[0.0] * length for length in lengths]
    for i, response in enumerate(rewards):
        told = [k for k, one in enumerate(response) if one is not None]
        for t in range(lengths[i]):
            for k in told:
                if partition == "none":
                    found[i][t] += response[k][t] / len(told)
                    continue
                rows = [i] if partition == "intra_sample" else [j for j, g in enumerate(group) if g == group[i]]
                pool = [r for j in rows if k < len(rewards[j]) and rewards[j][k] is not None for r in rewards[j][k]]
                found[i][t] += slow_z(response[k][t], pool) / len(told)
    return found


class Case:
    """Responses of several lengths to prompts of several rubrics, some verdicts missing; as lists and as tensors."""

    def __init__(
        self, seed: int, groups: int, per_group: int, most_criteria: int, longest: int, missing: float
    ) -> None:
        draw = np.random.default_rng(seed)
        self.group, self.lengths, self.rewards = [], [], []
        for g in range(groups):
            criteria = int(draw.integers(1, most_criteria + 1))
            for _ in range(per_group):
                length = int(draw.integers(1, longest + 1))
                response: list[list[float] | None] = []
                for _k in range(criteria):
                    relevance = draw.random(length) if draw.random() < 0.7 else np.full(length, draw.random())
                    sign = 1.0 if draw.random() < 0.5 else -1.0
                    response.append(
                        None if draw.random() < missing else [float(np.float32(sign * p)) for p in relevance]
                    )
                self.group.append(g)
                self.lengths.append(length)
                self.rewards.append(response)

    def tensors(self, junk: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """criterion [B,C,T] with `junk` behind the responses, mask [B,T], group [B]."""
        width, criteria = max(self.lengths), max(map(len, self.rewards))
        criterion = torch.full((len(self.lengths), criteria, width), NAN)
        for i, response in enumerate(self.rewards):
            for k, one in enumerate(response):
                if one is not None:
                    criterion[i, k] = junk
                    criterion[i, k, : len(one)] = torch.tensor(one)
        return criterion, torch.arange(width) < torch.tensor(self.lengths)[:, None], torch.tensor(self.group)

    def slow(self, partition: str, union: bool) -> np.ndarray:
        found = np.zeros((len(self.lengths), max(self.lengths)))
        for i, row in enumerate(slow_tokens(self.rewards, self.group, partition, union)):
            found[i, : len(row)] = row
        return found


cases = st.builds(
    Case,
    seed=st.integers(0, 10**6),
    groups=st.integers(1, 3),
    per_group=st.integers(1, 4),
    most_criteria=st.integers(1, 4),
    longest=st.integers(1, 7),
    missing=st.sampled_from([0.0, 0.3, 1.0]),
)


def close(found: torch.Tensor, wanted: Any) -> None:
    np.testing.assert_allclose(found.numpy(), np.asarray(wanted), rtol=1e-4, atol=1e-5)


# -- groups ------------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    rewards=st.lists(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 1.0, -2.0]), min_size=1, max_size=9),
    seed=st.integers(0, 99),
)
def test_group_advantages_are_the_loop_s(rewards: list[float], seed: int) -> None:
    group = np.random.default_rng(seed).choice([3, 5, 100], len(rewards)).tolist()
    found = ops.group_advantage(torch.tensor(rewards), torch.tensor(group))
    close(found, slow_group([float(np.float32(r)) for r in rewards], group))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e8, -7.7e-5, 3e7 / 7])
def test_equal_rewards_give_exactly_zero(value: float, dtype: torch.dtype) -> None:
    """The mean of seven times 0.1 is not 0.1 in floating point."""
    rewards = torch.tensor([value] * 7 + [1.0, 2.0], dtype=dtype)
    found = ops.group_advantage(rewards, torch.tensor([0] * 7 + [1] * 2))
    assert found[:7].tolist() == [0.0] * 7
    assert found[7:].tolist() == pytest.approx([-0.5 / (0.5**0.5 + 1e-6), 0.5 / (0.5**0.5 + 1e-6)])


def test_a_missing_reward_takes_no_part() -> None:
    found = ops.group_advantage(torch.tensor([1.0, NAN, 3.0]), torch.tensor([4, 4, 4]))
    close(found[[0, 2]], slow_group([1.0, 3.0], [0, 0]))
    assert found[1] == 0


def test_standardize_needs_like_shapes() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        ops.standardize(torch.zeros(2), torch.ones(3).bool(), torch.zeros(2).long(), unbiased=True)


# -- criteria ----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(case=cases, partition=st.sampled_from(PARTITIONS), union=st.booleans())
def test_token_advantages_are_the_loop_s(case: Case, partition: Any, union: bool) -> None:
    """Also with junk behind the ends of the responses."""
    wanted = case.slow(partition, union)
    for junk in (0.0, NAN, float("inf")):
        found = ops.criterion_advantage(*case.tensors(junk), partition, union=union)
        close(found, wanted)
        assert torch.isfinite(found).all()


@settings(max_examples=60, deadline=None)
@given(case=cases, partition=st.sampled_from(PARTITIONS), union=st.booleans(), seed=st.integers(0, 99))
def test_the_order_of_criteria_changes_nothing_and_that_of_responses_only_the_order(
    case: Case, partition: Any, union: bool, seed: int
) -> None:
    criterion, mask, group = case.tensors()
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randperm(criterion.shape[1], generator=generator)
    rows = torch.randperm(len(mask), generator=generator)
    found = ops.criterion_advantage(criterion, mask, group, partition, union=union)
    close(ops.criterion_advantage(criterion[:, columns], mask, group, partition, union=union), found)
    moved = ops.criterion_advantage(criterion[rows], mask[rows], group[rows], partition, union=union)
    close(moved, found[rows])


@pytest.mark.parametrize("partition", ["intra_sample", "inter_sample"])
@pytest.mark.parametrize("union", [False, True])
def test_constant_relevance_gives_exactly_zero(partition: Any, union: bool) -> None:
    """Inside a response for `intra_sample`; `inter_sample` also needs the same verdict on all of the group."""
    mask = torch.arange(7) < torch.tensor([[7], [3]])
    criterion = torch.full((2, 2, 7), 0.1)
    criterion[:, 1] = 1 / 3
    if partition == "intra_sample":
        criterion[1] *= -1
    assert not ops.criterion_advantage(criterion, mask, torch.zeros(2).long(), partition, union=union).any()
    if partition == "intra_sample":
        return
    criterion[1] *= -1
    assert ops.criterion_advantage(criterion, mask, torch.zeros(2).long(), partition, union=union)[mask].all()


def test_a_response_without_a_known_verdict_gets_zero_and_takes_no_part() -> None:
    mask = torch.ones(3, 2).bool()
    criterion = torch.tensor([[[0.0, 1.0]], [[NAN, NAN]], [[0.0, -1.0]]])
    found = ops.criterion_advantage(criterion, mask, torch.zeros(3).long(), "inter_sample")
    assert found[1].tolist() == [0, 0]
    close(found[[0, 2]], np.array([[0.0, 2**0.5], [0.0, -(2**0.5)]]) * 0.5**0.5 / (0.5**0.5 + 1e-6))


def test_longer_responses_weigh_more_between_responses_and_not_within() -> None:
    """The length bias of appendix D: with one half relevant in both, only `inter_sample` pulls the short one to the long."""
    mask = torch.arange(8) < torch.tensor([[2], [8]])
    criterion = torch.zeros(2, 1, 8)
    criterion[0, 0, 0], criterion[1, 0, :4] = 1.0, -1.0
    group = torch.zeros(2).long()
    intra = ops.criterion_advantage(criterion, mask, group, "intra_sample")
    assert intra[0, :2].tolist() == pytest.approx([1.0, -1.0], abs=1e-4)
    inter = ops.criterion_advantage(criterion, mask, group, "inter_sample")
    assert inter[0, 1] == inter[1, 7] > 0  # above a mean that the long response makes


def test_an_unknown_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="partition is one of"):
        ops.criterion_advantage(torch.zeros(1, 1, 1), torch.ones(1, 1).bool(), torch.zeros(1).long(), "both")  # type: ignore[arg-type]
