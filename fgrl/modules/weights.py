"""Whole trained weights, wherever a strategy keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fgrl.modules.base import RoundModule
from fgrl.modules.trainer import last_checkpoint


def full_state(module: RoundModule) -> dict[str, Tensor] | None:
    """The trained weights of `module.model` in float32 by name, read from the last checkpoint; needs no other process.

    None when the model of this process has them itself (`auto`, `ddp`). DeepSpeed keeps float32 weights in pieces in
    its optimizer, next to a model in bfloat16 (whole with ZeRO-2, in pieces with ZeRO-3); FSDP has a piece of each.
    """
    strategy = module.settings.strategy
    if strategy in ("auto", "ddp"):
        return None
    path = last_checkpoint(module.run.dir)
    if path is None:
        raise FileNotFoundError(f"no checkpoint in {module.run.dir}: the weights of {strategy} are nowhere whole")
    if strategy.startswith("deepspeed"):
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        found = get_fp32_state_dict_from_zero_checkpoint(str(path))
    else:
        found = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    names = {name.removeprefix("_forward_module."): value for name, value in found.items()}
    return {name.removeprefix("model."): value for name, value in names.items()}


def fill(model: Any, state: Mapping[str, Tensor]) -> Any:
    """Put the weights of `full_state` into a freshly loaded `model`; raise when anything that it trains is missing."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    wrong = [f"{name}: missing" for name in trained if name not in state]
    wrong += [
        f"{name}: {tuple(state[name].shape)} instead of {tuple(parameter.shape)}"
        for name, parameter in trained.items()
        if name in state and state[name].shape != parameter.shape
    ]
    wrong += [f"{name}: not in the model" for name in state if name not in model.state_dict()]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise RuntimeError(f"the trained weights are not whole, nothing was saved: {'; '.join(wrong[:3])}{more}")
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(state[name])
    return model
