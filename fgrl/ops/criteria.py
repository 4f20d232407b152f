"""Advantages in groups of responses to one prompt, and of the criteria of a rubric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fgrl import lazy
from fgrl.ops.arguments import check_choice
from fgrl.ops.statistics import masked_mean

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")

Partition = Literal["intra_sample", "inter_sample", "none"]


def standardize(
    x: Tensor, mask: Tensor, cell: Tensor, *, unbiased: bool, eps: float = 1e-6, min_std: float = 0.0
) -> Tensor:
    """(x - mean) / (std + eps) inside each cell, without gradient; shaped as `x`, in its type, 0 where not `mask`.

    x, mask (bool), cell (long, from 0): same shape; entries with the same `cell` are standardised together. std divides by
    their count, or by one less when `unbiased`. A cell whose entries are all equal, or that has one, gives exactly 0,
    whatever rounding makes of its mean; so does one whose std is less than `min_std`.
    """
    if not x.shape == mask.shape == cell.shape:
        raise ValueError(f"x {tuple(x.shape)}, mask {tuple(mask.shape)}, cell {tuple(cell.shape)} differ in shape")
    result = torch.zeros_like(x)
    where, value = cell[mask], x.detach()[mask].double()
    if not len(where):
        return result
    empty = value.new_zeros(int(where.max()) + 1)
    count = empty.index_add(0, where, torch.ones_like(value)).clamp(min=1)
    centred = value - (empty.index_add(0, where, value) / count)[where]
    std = (empty.index_add(0, where, centred.square()) / (count - int(unbiased)).clamp(min=1)).sqrt()
    low = empty.scatter_reduce(0, where, value, "amin", include_self=False)
    high = empty.scatter_reduce(0, where, value, "amax", include_self=False)
    varies = (high > low) & (std >= min_std)
    scaled = torch.where(varies[where], centred / (std[where] + eps), 0.0)
    result[mask] = scaled.to(x.dtype)
    return result


def group_advantage(reward: Tensor, group: Tensor, eps: float = 1e-6) -> Tensor:
    """A_i = (r_i - mean) / (std + eps) over the responses to one prompt, sample std (Shao et al. 2024, section 4.1.2).

    reward: [B]; NaN is missing: it takes no part and gets 0. group: long [B], any numbers. Returns [B]. Equal rewards,
    and a response that is alone, give 0.
    """
    return standardize(reward, ~torch.isnan(reward), group_index(group), unbiased=True, eps=eps)


def group_index(group: Tensor) -> Tensor:
    """The groups numbered from 0 without gaps: long [B]."""
    return torch.unique(group, return_inverse=True)[1]


def known_criteria(criterion: Tensor, mask: Tensor) -> Tensor:
    """bool [B,C]: which criteria have a reward on every real token; the others are absent or missing (NaN).

    criterion: [B,C,T]; mask: bool [B,T].
    """
    return ~(torch.isnan(criterion) & mask[:, None, :]).any(dim=2)


def criterion_advantage(
    criterion: Tensor, mask: Tensor, group: Tensor, partition: Partition, *, union: bool = False, eps: float = 1e-6,
    min_std: float = 0.0,
) -> Tensor:  # fmt: skip
    """Token advantage of rewards for several criteria, [B,C,T] -> [B,T] ("Rubrics to Tokens", section 4.2.2, appendix D).

    criterion: r = score (+1 kept, -1 broken) x relevance; NaN where a criterion is absent or its verdict missing: such a
    criterion takes no part. mask: bool [B,T]. group: long [B]; criterion c of all responses of a group is the same one.
    partition: rewards are standardised (population std + eps) over the tokens of one response (`intra_sample`), over all
    tokens of all responses of the group, so that long ones weigh more (`inter_sample`), or not at all (`none`).
    union: False standardises each criterion by itself and then takes the mean over a response's known criteria, as the
    paper does; True takes the mean first and standardises that once. Rewards that do not vary, or whose std is less than
    `min_std`, give 0.
    """
    check_choice("partition", partition, ("intra_sample", "inter_sample", "none"))
    valid = known_criteria(criterion, mask)[:, :, None] & mask[:, None, :]
    if union:
        criterion, valid = masked_mean(criterion, valid, dim=1)[:, None], valid.any(dim=1, keepdim=True)
    if partition != "none":
        rows, columns = criterion.shape[:2]
        owner = torch.arange(rows, device=criterion.device) if partition == "intra_sample" else group_index(group)
        cell = owner[:, None] * columns + torch.arange(columns, device=criterion.device)
        cells = cell[:, :, None].expand_as(valid)
        criterion = standardize(criterion, valid, cells, unbiased=False, eps=eps, min_std=min_std)
    return masked_mean(criterion, valid, dim=1)
