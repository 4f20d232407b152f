"""Statistics of the real entries of a tensor: sum, mean, variance, standardization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fgrl.base import lazy
from fgrl.base.mergeable import Mean

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")


def check_choice(what: str, choice: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless `choice` is one of `choices`."""
    if choice not in choices:
        raise ValueError(f"{what} is one of {', '.join(choices)}, not {choice!r}")


def zero_masked(x: Tensor, mask: Tensor) -> Tensor:
    """Return `x` with 0 in the masked slots. Apply it before any arithmetic, so that gradients are finite too."""
    if x.shape != mask.shape:
        raise ValueError(f"values {tuple(x.shape)} and mask {tuple(mask.shape)} differ in shape")
    return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Return the sum of the real entries, over everything or along `dim`. Shapes as in `masked_mean`."""
    kept = zero_masked(x, mask)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Return the mean of the real entries, over everything or along `dim`; 0 if there are none.

    x, mask: same shape. Returns a scalar, or `x`'s shape without `dim`.
    """
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(x, mask, dim) / count.clamp(min=1)


def mean_metric(x: Tensor, mask: Tensor) -> Mean:
    """Return the mean of the real entries, without gradient, as a metric that can be merged."""
    return Mean(masked_sum(x.detach(), mask), mask.sum())


def masked_var(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Return the population variance of the real entries, over everything or along `dim`; 0 if there are none.

    Shapes as in `masked_mean`.
    """
    mean = masked_mean(x, mask, dim)
    centred = zero_masked(x, mask) - (mean if dim is None else mean.unsqueeze(dim))
    return masked_mean(centred.square(), mask, dim)


def centred(x: Tensor, mask: Tensor, group: Tensor) -> Tensor:
    """Return `x` minus the mean of the real entries of all rows of its group. Shaped as `x`.

    x, mask: [B,T]; group: long [B], any numbers. Every entry has the same weight, whether its row is short or long.
    """
    index = torch.unique(group, return_inverse=True)[1]
    empty = torch.zeros(len(group), dtype=torch.float64, device=x.device)
    total = empty.index_add(0, index, masked_sum(x.double(), mask, dim=1))
    count = empty.index_add(0, index, mask.sum(1).double()).clamp(min=1)
    return zero_masked(x - (total / count)[index].to(x.dtype)[:, None], mask)


def masked_whiten(x: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Standardize over all real entries of the batch: (x - mean) / sqrt(population variance + eps). Shaped as `x`.

    The statistics cover `x` only: gather the rows of all processes first.
    """
    centred = zero_masked(zero_masked(x, mask) - masked_mean(x, mask), mask)
    return centred * (masked_var(x, mask) + eps).rsqrt()


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Return 1 - Var(returns - values) / Var(returns) over real tokens, a scalar: 1 for a perfect critic, 0 for a
    constant one.

    values, returns, mask: [B,T]. 0 when the returns do not vary.
    """
    total = masked_var(returns, mask)
    rest = masked_var(zero_masked(returns, mask) - zero_masked(values, mask), mask)
    varies = total > 0
    return torch.where(varies, 1.0 - rest / torch.where(varies, total, torch.ones_like(total)), torch.zeros_like(total))
