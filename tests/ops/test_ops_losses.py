"""Advantages, KL estimators, and the PPO losses, against closed forms."""

from __future__ import annotations

import math
from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.base import ops

ONE = torch.ones(1, 1, dtype=torch.bool)


def slow_gae(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """The defining double sum over one response without padding."""
    n = len(rewards)
    nexts = [*values[1:], 0.0]
    deltas = [rewards[t] + gamma * nexts[t] - values[t] for t in range(n)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, n)) for t in range(n)]


@settings(max_examples=150, deadline=None)
@given(
    masks=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4),
    padded=st.booleans(),
    gamma=st.sampled_from([1.0, 0.99, 0.5, 0.0]),
    lam=st.sampled_from([1.0, 0.95, 0.3, 0.0]),
    seed=st.integers(0, 1000),
)
def test_gae_by_definition(masks, padded, gamma, lam, seed):
    """Right-padded rows as responses are, and masks with holes, whose tokens count as absent."""
    mask = torch.tensor([sorted(row, reverse=True) if padded else row for row in masks])
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, *mask.shape, generator=generator, dtype=torch.float64)
    advantages, returns = ops.gae(rewards, values, mask, gamma, lam)
    for row in range(len(mask)):
        kept = mask[row]
        expected = slow_gae(rewards[row, kept].tolist(), values[row, kept].tolist(), gamma, lam)
        torch.testing.assert_close(advantages[row, kept], torch.tensor(expected, dtype=torch.float64))
        torch.testing.assert_close(returns[row, kept], advantages[row, kept] + values[row, kept])
        assert not advantages[row, ~kept].any()
        assert not returns[row, ~kept].any()


@given(
    masks=st.integers(1, 3).flatmap(
        lambda rows: st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=rows, max_size=rows)
    ),
    gamma=st.sampled_from([1.0, 0.9]),
    lam=st.sampled_from([1.0, 0.95, 0.0]),
    seed=st.integers(0, 1000),
)
def test_gae_that_stops_at_a_mask_treats_each_run_of_tokens_as_a_response(masks, gamma, lam, seed):
    mask = torch.tensor(masks)
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, *mask.shape, generator=generator, dtype=torch.float64)
    advantages, returns = ops.gae(rewards, values, mask, gamma, lam, "stop")
    for row, real in enumerate(masks):
        for kept, run in groupby(range(9), key=lambda t: real[t]):
            places = list(run)
            expected = slow_gae(rewards[row, places].tolist(), values[row, places].tolist(), gamma, lam)
            wanted = torch.tensor(expected if kept else [0.0] * len(places), dtype=torch.float64)
            torch.testing.assert_close(advantages[row, places], wanted)
            torch.testing.assert_close(returns[row, places], wanted + values[row, places] if kept else wanted)


def test_gae_refuses_an_unknown_gap():
    with pytest.raises(ValueError, match="gap is one of pass, stop, not 'jump'"):
        ops.gae(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool), 1.0, 0.95, "jump")


def test_gae_does_not_bootstrap_from_padding():
    mask = torch.tensor([[True, True, False]])
    advantages, returns = ops.gae(torch.tensor([[0.0, 1, 0]]), torch.tensor([[0.5, 0.25, 100]]), mask, 1.0, 1.0)
    assert returns.tolist() == [[1, 1, 0]]
    assert advantages.tolist() == [[0.5, 0.75, 0]]


@pytest.mark.parametrize("where", range(5))
def test_a_reward_on_one_token_moves_only_what_it_should(where: int):
    mask = torch.tensor([[True] * 5 + [False]])
    values = torch.linspace(-1, 1, 6)[None]
    zero = torch.zeros(1, 6)
    one_hot = zero.clone()
    one_hot[0, where] = 1.0

    def moved(lam: float, gamma: float = 1.0) -> list[float]:
        with_reward, _ = ops.gae(one_hot, values, mask, gamma, lam)
        without, _ = ops.gae(zero, values, mask, gamma, lam)
        return (with_reward - without)[0].tolist()

    assert moved(lam=0.0) == pytest.approx(one_hot[0].tolist())
    assert moved(lam=1.0) == pytest.approx([float(t <= where) for t in range(6)])
    decayed = [0.5 ** (where - t) if t <= where else 0.0 for t in range(6)]
    assert moved(lam=0.5) == pytest.approx(decayed)
    assert moved(lam=1.0, gamma=0.5) == pytest.approx(decayed)


def test_gae_carries_no_gradient():
    rewards, values = torch.zeros(2, 1, 3, requires_grad=True).unbind()
    advantages, returns = ops.gae(rewards, values, torch.ones(1, 3, dtype=torch.bool), 1.0, 0.95)
    assert not advantages.requires_grad
    assert not returns.requires_grad


def test_gae_of_nothing():
    empty = torch.zeros(2, 0)
    advantages, returns = ops.gae(empty, empty, empty.bool(), 1.0, 0.95)
    assert advantages.shape == returns.shape == (2, 0)


# -- KL ----------------------------------------------------------------------------------------------------------------


def two_distributions(seed: int, size: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a policy (with gradient) and log-probs of a reference over a small vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    logits, reference = torch.randn(2, size, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), reference.log_softmax(-1)


def expectation(logits: torch.Tensor, reference: torch.Tensor, estimator: str) -> torch.Tensor:
    """Exact mean of the estimator over tokens drawn from the policy; the drawing itself has no gradient."""
    logp = logits.log_softmax(-1)
    return (logp.detach().exp() * ops.kl(logp, reference, estimator)).sum()  # type: ignore[arg-type]


def gradient(value: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, logits)[0]


@pytest.mark.parametrize("seed", range(5))
def test_k1_and_k3_are_unbiased_and_k2_is_not(seed: int):
    logits, reference = two_distributions(seed)
    logp = logits.log_softmax(-1)
    exact = (logp.exp() * (logp - reference)).sum()
    assert exact > 0.05
    torch.testing.assert_close(expectation(logits, reference, "k1"), exact)
    torch.testing.assert_close(expectation(logits, reference, "k3"), exact)
    assert (expectation(logits, reference, "k2") - exact).abs() > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_gradients_of_the_estimators(seed: int):
    logits, reference = two_distributions(seed)
    logp = logits.log_softmax(-1)
    reverse = gradient((logp.exp() * (logp - reference)).sum(), logits)
    forward = gradient((reference.exp() * (reference - logits.log_softmax(-1))).sum(), logits)
    torch.testing.assert_close(gradient(expectation(logits, reference, "k1"), logits), torch.zeros_like(logits))
    torch.testing.assert_close(gradient(expectation(logits, reference, "k2"), logits), reverse)
    torch.testing.assert_close(gradient(expectation(logits, reference, "k3"), logits), forward)
    assert (forward - reverse).abs().max() > 1e-3


def test_estimators_at_equal_models_and_their_values():
    logp = torch.tensor([[-1.0, -2.0]])
    for estimator in ("k1", "k2", "k3"):
        assert ops.kl(logp, logp, estimator).tolist() == [[0, 0]]
    d = 0.7
    ref = logp - d
    torch.testing.assert_close(ops.kl(logp, ref, "k1"), torch.full((1, 2), d))
    torch.testing.assert_close(ops.kl(logp, ref, "k2"), torch.full((1, 2), d * d / 2))
    torch.testing.assert_close(ops.kl(logp, ref, "k3"), torch.full((1, 2), math.exp(-d) - 1 + d))


def test_k3_is_never_negative():
    logp = torch.linspace(-3, 0, 301)
    assert (ops.kl(logp, torch.full_like(logp, -1.0), "k3") >= 0).all()
    assert (ops.kl(logp, torch.full_like(logp, -1.0), "k1") < 0).any()


def test_an_unknown_estimator_is_named():
    with pytest.raises(ValueError, match="k1, k2, k3, not 'k4'"):
        ops.kl(torch.zeros(1, 1), torch.zeros(1, 1), "k4")  # type: ignore[arg-type]


# -- PPO ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, False),
        (1.1, 1.0, -1.1, -1.1, False),
        (1.5, 1.0, -1.2, 0.0, True),
        (0.5, 1.0, -0.5, -0.5, False),
        (0.5, -1.0, 0.8, 0.0, True),
        (1.5, -1.0, 1.5, 1.5, False),
        (0.9, -2.0, 1.8, 1.8, False),
        (3.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_clipped_policy_loss(ratio: float, advantage: float, loss: float, slope: float, clipped: bool):
    old = torch.tensor([[-1.3]], dtype=torch.float64)
    logp = (old + math.log(ratio)).requires_grad_()
    per_token, marked = ops.clip_loss(logp, old, torch.full_like(old, advantage), ONE, 0.2)
    per_token.sum().backward()
    assert per_token.item() == pytest.approx(loss)
    assert logp.grad.item() == pytest.approx(slope)
    assert marked.item() is clipped


@pytest.mark.parametrize(("ratio", "loss"), [(1.25, -1.25), (1.5, -1.27)])
def test_the_upper_clip_may_differ(ratio: float, loss: float):
    logp = torch.tensor([[math.log(ratio)]])
    per_token, marked = ops.clip_loss(logp, torch.zeros(1, 1), torch.ones(1, 1), ONE, 0.2, 0.27)
    assert per_token.item() == pytest.approx(loss)
    assert marked.item() is (ratio > 1.27)
    low = torch.tensor([[math.log(0.75)]])
    assert ops.clip_loss(low, torch.zeros(1, 1), -torch.ones(1, 1), ONE, 0.2, 0.27)[0].item() == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope", "clipped"),
    [
        (2.0, 1.0, 0.0, 2.0, 2.0, False),  # moved away from the target: the larger, unclipped error
        (2.0, 1.0, 3.0, 1.62, 0.0, True),  # moved far towards it: no more gradient
        (1.1, 1.0, 3.0, 1.805, -1.9, False),  # within the clip both agree
        (0.0, 1.0, -1.0, 1.62, 0.0, True),
    ],
)
def test_clipped_value_loss(value: float, old: float, target: float, loss: float, slope: float, clipped: bool):
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    fixed = [torch.tensor([[number]], dtype=torch.float64) for number in (old, target)]
    per_token, marked = ops.value_loss(values, *fixed, ONE, 0.2)
    per_token.sum().backward()
    assert per_token.item() == pytest.approx(loss)
    assert values.grad.item() == pytest.approx(slope)
    assert marked.item() is clipped


def test_value_loss_without_clip():
    values = torch.tensor([[5.0]], requires_grad=True)
    per_token, marked = ops.value_loss(values, None, torch.tensor([[1.0]]), ONE, None)
    per_token.sum().backward()
    assert per_token.item() == 8.0
    assert values.grad.item() == 4.0
    assert not marked.any()
    with pytest.raises(ValueError, match="old values"):
        ops.value_loss(values, None, torch.tensor([[1.0]]), ONE, 0.2)


def test_clip_marks_are_false_in_padding():
    mask = torch.tensor([[True, False]])
    far = torch.tensor([[math.log(2.0)] * 2])
    assert ops.clip_loss(far, torch.zeros(1, 2), torch.ones(1, 2), mask, 0.2)[1].tolist() == [[True, False]]
    assert ops.value_loss(far, torch.zeros(1, 2), torch.ones(1, 2), mask, 0.2)[1].tolist() == [[True, False]]


def test_the_policy_gradient_of_one_rewarded_token_touches_only_it():
    mask = torch.ones(1, 4, dtype=torch.bool)
    rewards = torch.tensor([[0.0, 0.0, 1.0, 0.0]])
    advantage, _ = ops.gae(rewards, torch.zeros(1, 4), mask, 1.0, 0.0)
    logp = torch.full((1, 4), -1.0, requires_grad=True)
    loss, _ = ops.clip_loss(logp, torch.full((1, 4), -1.0), advantage, mask, 0.2)
    ops.aggregate(loss, mask, "token_mean", total_tokens=4, total_rows=1).backward()
    assert logp.grad.tolist() == [[0, 0, -0.25, 0]]
