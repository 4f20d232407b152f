"""Masked statistics, and the promise that masked slots never matter."""

from __future__ import annotations

import subprocess
import sys

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


def test_importing_ops_does_not_load_torch():
    code = "import sys, fgrl.base.ops; assert 'torch._C' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_statistics_are_those_of_the_real_entries():
    x = numbers(0)
    real = x[MASK]
    torch.testing.assert_close(ops.masked_sum(x, MASK), real.sum())
    torch.testing.assert_close(ops.masked_mean(x, MASK), real.mean())
    torch.testing.assert_close(ops.masked_var(x, MASK), real.var(correction=0))


def test_statistics_along_rows():
    x = numbers(1)
    torch.testing.assert_close(
        ops.masked_mean(x, MASK, dim=1), torch.stack([x[0, :3].mean(), x[1, 0], x.new_zeros(()), x[3].mean()])
    )
    torch.testing.assert_close(
        ops.masked_var(x, MASK, dim=1),
        torch.stack([x[0, :3].var(correction=0), x.new_zeros(()), x.new_zeros(()), x[3].var(correction=0)]),
    )


def test_the_mean_as_a_metric_knows_its_count_and_has_no_gradient():
    x = numbers(2).requires_grad_()
    metric = ops.mean_metric(x, MASK)
    assert float(metric) == pytest.approx(float(x[MASK].mean()))
    assert metric.count == 9
    other = ops.mean_metric(torch.ones(1, 3), torch.tensor([[True, False, False]]))
    assert float(metric.merge(other)) == pytest.approx((float(x[MASK].sum()) + 1) / 10)


def test_nothing_real_is_zero():
    nothing = torch.zeros_like(MASK)
    x = torch.full((4, 5), float("nan"))
    for value in (ops.masked_sum(x, nothing), ops.masked_mean(x, nothing), ops.masked_var(x, nothing)):
        assert value == 0
    assert not ops.masked_whiten(x, nothing).any()


def test_whitening_standardises_the_whole_batch():
    white = ops.masked_whiten(5 * numbers(2) - 3, MASK)
    assert white[MASK].mean().abs() < 1e-9
    torch.testing.assert_close(white[MASK].std(correction=0), torch.tensor(1.0, dtype=torch.float64))
    assert not white[~MASK].any()
    # not row by row: the rows keep their differences
    assert ops.masked_mean(white, MASK, dim=1).abs().max() > 0.05


def test_whitening_equal_values_gives_zeros():
    assert not ops.masked_whiten(torch.full((4, 5), 0.25), MASK).any()


def test_explained_variance():
    returns = numbers(4)
    shifted = returns + 7.0
    assert ops.explained_variance(shifted, returns, MASK) == pytest.approx(1.0)
    assert ops.explained_variance(torch.zeros_like(returns), returns, MASK) == pytest.approx(0.0)
    assert ops.explained_variance(-returns, returns, MASK) == pytest.approx(1.0 - 4.0)
    assert ops.explained_variance(returns, torch.full_like(returns, 2.0), MASK) == 0


def test_shapes_that_differ_are_an_error():
    with pytest.raises(ValueError, match=r"\(4, 5\).*\(4, 4\)"):
        ops.masked_mean(torch.zeros(4, 5), MASK[:, :4])


# -- masked slots ------------------------------------------------------------------------------------------------------

IDS = torch.where(MASK, torch.arange(5) // 2, -1)
VALID = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)

# name -> (function of the tensors, mask of each tensor)
FUNCTIONS = {
    "masked_sum": (lambda x: ops.masked_sum(x, MASK, dim=1), [MASK]),
    "masked_mean": (lambda x: ops.masked_mean(x, MASK), [MASK]),
    "masked_var": (lambda x: ops.masked_var(x, MASK, dim=1), [MASK]),
    "masked_whiten": (lambda x: ops.masked_whiten(x, MASK), [MASK]),
    "explained_variance": (lambda x, y: ops.explained_variance(x, y, MASK), [MASK, MASK]),
    "token_mean": (lambda x: ops.aggregate(x, MASK, "token_mean", total_tokens=9, total_rows=4), [MASK]),
    "seq_mean": (lambda x: ops.aggregate(x, MASK, "seq_mean", total_tokens=9, total_rows=4), [MASK]),
    "sum": (lambda x: ops.aggregate(x, MASK, "sum", total_tokens=9, total_rows=4), [MASK]),
    **{
        f"to_segments {how}": (lambda x, how=how: ops.to_segments(x, IDS, how)[0], [MASK])
        for how in ("last", "mean", "sum")
    },
    **{f"spread {how}": (lambda x, how=how: ops.spread(x, IDS, how), [VALID]) for how in ("even", "repeat", "last")},
    **{
        f"aggregate_segments {how}": (lambda x, how=how: ops.aggregate_segments(x, VALID, how), [VALID])
        for how in ("mean", "sum", "last")
    },
    **{f"kl {k}": (lambda x, y, k=k: ops.kl(x, y, k, MASK), [MASK, MASK]) for k in ("k1", "k2", "k3")},
    "clip_loss": (lambda x, y, a: ops.clip_loss(x, y, a, MASK, 0.2)[0], [MASK] * 3),
    "value_loss": (lambda x, y, r: ops.value_loss(x, y, r, MASK, 0.2)[0], [MASK] * 3),
    "value_loss, no clip": (lambda x, r: ops.value_loss(x, None, r, MASK, None)[0], [MASK] * 2),
}


@pytest.mark.parametrize("junk", [float("nan"), float("inf"), float("-inf"), 1e30])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_masked_slots_change_neither_values_nor_gradients(name: str, junk: float):
    function, masks = FUNCTIONS[name]
    found = []
    for fill in (0.5, junk):
        inputs = [
            torch.where(mask, numbers(20 + i, tuple(mask.shape)), fill).requires_grad_() for i, mask in enumerate(masks)
        ]
        out = function(*inputs)
        (out * torch.linspace(1.0, 2.0, out.numel(), dtype=out.dtype).view(out.shape)).sum().backward()
        found.append([out.detach(), *(x.grad for x in inputs)])
    for clean, dirty in zip(*found, strict=True):
        assert torch.isfinite(clean).all()
        assert torch.equal(clean, dirty)
    for mask, gradient in zip(masks, found[1][1:], strict=True):
        assert not gradient[~mask].any()


@pytest.mark.parametrize("gap", ["pass", "stop"])
@pytest.mark.parametrize("junk", [float("nan"), float("inf")])
def test_masked_slots_do_not_change_advantages(junk: float, gap):
    rewards, values = numbers(6), numbers(7)
    clean = ops.gae(rewards, values, MASK, 0.9, 0.8, gap)
    dirty = ops.gae(rewards.masked_fill(~MASK, junk), values.masked_fill(~MASK, junk), MASK, 0.9, 0.8, gap)
    for a, b in zip(clean, dirty, strict=True):
        assert torch.equal(a, b)
        assert not a[~MASK].any()


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n.startswith(("spread", "kl", "clip", "value", "masked_wh"))])
def test_masked_slots_of_results_are_zero(name: str):
    function, masks = FUNCTIONS[name]
    out = function(*(numbers(30 + i, tuple(mask.shape)) for i, mask in enumerate(masks)))
    assert not out[~MASK].any()
    assert out[MASK].any()
