"""What every function checks of its arguments, and does with a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fgrl import lazy

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
    """`x` with 0 in the masked slots: before any arithmetic, so that gradients are finite too."""
    if x.shape != mask.shape:
        raise ValueError(f"values {tuple(x.shape)} and mask {tuple(mask.shape)} differ in shape")
    return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))
