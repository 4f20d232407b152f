"""Checks that the weights and the results of a model are finite."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fgrl.base.errors import Stopped
from fgrl.kinds.specs import ModelSpec


def non_finite(module: nn.Module) -> list[str]:
    """Return the names of the weights with an infinite or NaN value, in the order of `state_dict`.

    One pass over the weights, without a copy of them. A weight that has two names (tied) is checked and named once.
    Integer weights (quantized ones) and weights that are not in this process (meta, another rank's) are skipped.
    """
    seen: set[tuple[int, torch.Size]] = set()
    names = []
    for name, weight in module.state_dict().items():
        if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.is_meta or not weight.numel():
            continue
        place = (weight.data_ptr(), weight.shape)
        if place not in seen and not is_finite(weight):
            names.append(name)
        seen.add(place)
    return names


@torch.no_grad()
def is_finite(weight: Tensor) -> bool:
    """Return True if no value of `weight`, which has at least one, is infinite or NaN."""
    if weight.element_size() == 1:  # torch has no arithmetic for floating-point numbers of 8 bits
        weight = weight.float()
    return all(
        bool(torch.isfinite(end)) for end in torch.aminmax(weight)
    )  # NaN is both its least and its greatest number


def checked(numbers: Tensor, spec: ModelSpec) -> Tensor:
    """Return the result of a model. Raises `Stopped` if a value is NaN or +infinite. With a gradient nothing is
    checked, because the loss is checked.
    """
    if not torch.is_grad_enabled() and numbers.numel() and not bool((numbers.amax(-1) < torch.inf).all()):
        step = "" if spec.step is None else f", step {spec.step},"
        raise Stopped(
            f"model {spec.base}{step} computes numbers that are not finite (NaN or infinite), so nothing can be drawn from it, scored or "
            "compared: it diverged in training, or its weights are too large for their dtype. Take an earlier step of it, dtype: float32, "
            "or another model"
        )
    return numbers
