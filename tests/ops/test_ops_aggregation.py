"""The loss of an optimizer step from the losses of tokens: the same whatever its micro-batches are."""

from __future__ import annotations

import pytest
import torch

from fgrl.base import ops

MASK = torch.tensor(
    [
        [1, 1, 1, 0, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1],
    ],
    dtype=torch.bool,
)


def numbers(seed: int, shape: tuple[int, ...] = (4, 5)) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LENGTHS = [3, 1, 5, 2, 5, 4, 1, 2]
PARTITIONS = {
    "1x8": [8],
    "8x1": [1] * 8,
    "ragged": [3, 1, 4],
}


def step(sizes: list[int], how: str, average: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient of a PPO-like loss (policy and value terms), summed over micro-batches of these sizes."""
    width = 5
    mask = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    weight = numbers(10, (6,)).requires_grad_()
    features = numbers(11, (8, width, 6))
    old, advantage, old_values, returns = (numbers(seed, (8, width)) for seed in (12, 13, 14, 15))
    scale = float(len(sizes)) if average else 1.0
    losses, start = [], 0
    for size in sizes:
        part = slice(start, start + size)
        longest = int(mask[part].sum(dim=1).max())  # a micro-batch is padded to its own longest row
        kept = mask[part, :longest]
        output = (features[part, :longest] * weight).sum(-1)
        policy, _ = ops.clip_loss(output, old[part, :longest], advantage[part, :longest], kept, 0.2)
        value, _ = ops.value_loss(output, old_values[part, :longest], returns[part, :longest], kept, 0.2)
        loss = ops.aggregate(
            policy + 0.5 * value, kept, how, total_tokens=float(mask.sum()), total_rows=8.0, scale=scale
        )
        losses.append(loss)
        start += size
    total = torch.stack(losses).mean() if average else torch.stack(losses).sum()
    total.backward()
    return total.detach(), weight.grad


@pytest.mark.parametrize("how", ["token_mean", "seq_mean", "sum"])
@pytest.mark.parametrize("average", [False, True], ids=["summed", "averaged by the trainer"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_step_does_not_depend_on_its_micro_batches(how: str, average: bool, partition: str):
    loss, gradient = step(PARTITIONS[partition], how, average)
    whole, whole_gradient = step([8], how)
    torch.testing.assert_close(loss, whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, whole_gradient, rtol=1e-11, atol=1e-14)
    assert gradient.abs().max() > 1e-3


def test_aggregates_are_the_means_they_are_called():
    x = numbers(5)
    tokens, rows = float(MASK.sum()), 3.0
    token_mean = ops.aggregate(x, MASK, "token_mean", total_tokens=tokens, total_rows=rows)
    seq_mean = ops.aggregate(x, MASK, "seq_mean", total_tokens=tokens, total_rows=rows)
    torch.testing.assert_close(token_mean, x[MASK].mean())
    torch.testing.assert_close(seq_mean, (x[0, :3].mean() + x[1, 0] + x[3].mean()) / 3)
    assert abs(float(token_mean - seq_mean)) > 1e-3
    total = ops.aggregate(x, MASK, "sum", total_tokens=tokens, total_rows=rows)
    torch.testing.assert_close(total, x[MASK].sum() / 3)
    planned = ops.aggregate(x, MASK, "sum", total_tokens=tokens, total_rows=rows, planned_rows=5.0, scale=2.0)
    torch.testing.assert_close(planned, x[MASK].sum() * 2 / 5)


def test_aggregating_over_nothing_is_an_error():
    with pytest.raises(ValueError, match="token_mean over 0 tokens"):
        ops.aggregate(numbers(5), MASK, "token_mean", total_tokens=0, total_rows=1)
    with pytest.raises(ValueError, match="token_mean, seq_mean"):
        ops.aggregate(numbers(5), MASK, "mean", total_tokens=1, total_rows=1)  # type: ignore[arg-type]
