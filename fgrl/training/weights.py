"""Complete trained weights, independent of a strategy's storage."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import Tensor

from fgrl.training import checkpoints, shards
from fgrl.training.training_module import TrainingModule


def complete(strategy: str) -> bool:
    """Return True if the model of each process has all trained weights, in the precision of the training."""
    return strategy in ("auto", "ddp")


def full_state(module: TrainingModule) -> dict[str, Tensor] | None:
    """Return the trained weights of `module.model` in float32 by name, read from the last checkpoint, without other
    processes.

    None if the model of this process has them itself (`auto`, `ddp`). DeepSpeed keeps float32 weights sharded in its
    optimizer, next to a model in bfloat16 (complete with ZeRO-2, sharded with ZeRO-3); FSDP shards every weight.
    """
    strategy = module.settings.strategy
    if complete(strategy):
        return None
    path = checkpoints.last(module.run.dir)
    if path is None:
        raise FileNotFoundError(f"no checkpoint in {module.run.dir}: no process has the complete weights of {strategy}")
    if module.settings.deepspeed:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # it prints what it reads
            state = get_fp32_state_dict_from_zero_checkpoint(str(path))
    else:
        state = shards.whole_weights(path)
    names = {name.removeprefix("_forward_module."): value for name, value in state.items()}
    return {name.removeprefix("model."): value for name, value in names.items()}


def fill(model: Any, state: Mapping[str, Tensor]) -> Any:
    """Copy the weights of `full_state` into a newly loaded `model`. Raises RuntimeError if a trained weight is missing."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    mistakes = [f"{name}: missing" for name in trained if name not in state]
    mistakes += [
        f"{name}: {tuple(state[name].shape)} instead of {tuple(parameter.shape)}"
        for name, parameter in trained.items()
        if name in state and state[name].shape != parameter.shape
    ]
    mistakes += [f"{name}: not in the model" for name in state if name not in model.state_dict()]
    if mistakes:
        more = f" and {len(mistakes) - 3} more" if len(mistakes) > 3 else ""
        raise RuntimeError(f"the trained weights are incomplete, nothing was saved: {'; '.join(mistakes[:3])}{more}")
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(state[name])
    return model
