"""Lightning's strategies and precisions, with changes that make a training the same under each of them.

- The columns of a batch (log-probabilities, advantages, returns) reach the loss unchanged: a precision converts
  weights, never columns. Rounded to bfloat16, -523.7 would become -524.0.
- The gradient of an optimizer step does not depend on the number of its micro-batches.
- DeepSpeed also runs on CPUs, so that a recipe can be tried without its GPUs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities.seed import reset_seed
from lightning.pytorch.plugins.precision import DeepSpeedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from transformers.modeling_layers import GradientCheckpointingLayer

from fgrl.training.shards import Shards
from fgrl.training.trainer import BUCKET, TrainSettings


def arguments(settings: TrainSettings) -> dict[str, Any]:
    """Return the arguments of Lightning's `Trainer` for `settings.strategy` and `settings.precision`."""
    if settings.precision == "auto":
        raise ValueError("precision: auto is replaced while a recipe is built; name the precision")
    precision: dict[str, Any] = {}
    plugins: list[Any] = [Launched()]
    if settings.deepspeed:
        plugins.append(EnginePrecision(settings.precision))
    elif settings.precision == "bf16-true":
        plugins.append(NarrowBase())
    else:
        precision = {"precision": settings.precision}
    return {"strategy": _strategy(settings), "plugins": plugins} | precision


def _strategy(settings: TrainSettings) -> Any:
    if settings.deepspeed:
        if settings.accelerator == "cpu":
            os.environ["DS_ACCELERATOR"] = "cpu"  # read when DeepSpeed is imported, and inherited by further processes
        return DeepSpeed(config=deepspeed_config(settings), exclude_frozen_parameters=True)
    if settings.strategy == "fsdp":
        return Shards(settings.world, tensor_parallel_size=1)
    if settings.strategy == "ddp" or settings.world > 1:
        return DDPStrategy(process_group_backend="gloo" if settings.accelerator == "cpu" else None)
    return settings.strategy


class Launched(LightningEnvironment):
    """Environment in which the ranks exist before Lightning does. Lightning must not start any, and must not change
    their variables.
    """

    @property
    def creates_processes_externally(self) -> bool:
        return True

    def teardown(self) -> None:
        pass


class NarrowBase(Precision):
    """Precision `bf16-true`: frozen weights are converted to bfloat16; trained weights (adapters, heads) stay float32."""

    precision = "bf16-true"

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        for parameter in module.parameters():  # no buffers: rotary frequencies stay float32
            if not parameter.requires_grad and parameter.is_floating_point():
                parameter.data = parameter.data.bfloat16()
        return module


class EnginePrecision(DeepSpeedPrecision):
    """Precision of DeepSpeed's engine under Lightning's automatic optimization."""

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Convert only in float32: in bfloat16 the engine converts weights itself, after it has copied them in float32."""
        return super().convert_module(module) if self.precision == "32-true" else module

    def convert_input(self, data: Any) -> Any:
        return data

    def backward(self, tensor: torch.Tensor, model: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Run the backward pass. Lightning has already divided the loss by the number of micro-batches; the engine must
        not do it again.
        """
        super().backward(tensor, model, optimizer, *args, scale_wrt_gas=False, **kwargs)


class DeepSpeed(DeepSpeedStrategy):
    """Lightning's strategy, extended to CPUs. Without the changes it would refuse to start there, and pass DeepSpeed a
    device without a number.
    """

    @property
    def root_device(self) -> torch.device:
        device = super().root_device
        return torch.device("cpu", 0) if device.type == "cpu" else device

    def setup_environment(self) -> None:
        super(DeepSpeedStrategy, self).setup_environment()

    def setup_distributed(self) -> None:
        if self.root_device.type != "cpu":
            return super().setup_distributed()
        from deepspeed.ops import __compatible_ops__

        # a collective for inference alone: DeepSpeed would compile it for a minute in each new home, and a process that is killed
        # meanwhile leaves a lock for which all later ones wait
        __compatible_ops__["deepspeed_shm_comm"] = False
        reset_seed()
        self.set_world_ranks()
        self._init_deepspeed_distributed()
        return None


READING = ("embed", "hidden", "states", "score", "score_states", "logits", "values", "rewards")
"""Methods of a language model that read weights."""


def shard(model: Any, mesh: Any, precision: str) -> None:
    """Shard the weights of each transformer block of a language model, and the rest together, over the processes
    (`strategy: fsdp`). Its methods gather the weights that they use.

    In `bf16-mixed` blocks are gathered in bfloat16; the values between blocks stay float32, as in other strategies.
    """
    low = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    policy = low if precision == "bf16-mixed" else MixedPrecisionPolicy()
    for block in [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    register_fsdp_forward_method(model, "gathered")
    model.sharded, model.gathered = True, _Outermost(model.gathered)
    for name in READING:
        setattr(model, name, partial(_gathered, model, getattr(model, name)))


class _Outermost:
    """Gathering of weights for the outermost of nested calls: the number of inner calls, such as those for chunks of
    tokens, may differ between processes.
    """

    def __init__(self, gather: Callable[[Callable[[], Any]], Any]) -> None:
        self._gather, self._inside = gather, False

    def __call__(self, compute: Callable[[], Any]) -> Any:
        if self._inside:
            return compute()
        self._inside = True
        try:
            return self._gather(compute)
        finally:
            self._inside = False


def _gathered(model: Any, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return model.gathered(partial(method, *arguments, **options))


def clip(settings: TrainSettings, parameters: Sequence[Any]) -> float | None:
    """Scale the gradients of an optimizer step, of all micro-batches and processes, to a norm of at most `clip_norm`.

    Return their norm before scaling; None under ZeRO-3, whose engine clips in its own step. ZeRO-1 and ZeRO-2 would
    clip actor and critic together.
    """
    limit = settings.clip_norm
    if settings.strategy == "deepspeed_stage_3":
        return None
    if not settings.deepspeed:
        norm: Any = torch.nn.utils.clip_grad_norm_(parameters, math.inf if limit is None else limit)
        return float(norm.full_tensor() if settings.strategy == "fsdp" else norm)
    # each process has the fragments of the gradients that it steps with
    owned = [parameter for parameter in parameters if parameter._hp_mapping is not None]
    fragments = [owner._hp_mapping.get_lp_grad_fragment(owner._index_in_param_group) for owner in owned]
    squares = torch.zeros((), dtype=torch.float64, device=parameters[0].device)
    for fragment in fragments:
        squares += fragment.double().square().sum()
    torch.distributed.all_reduce(squares)
    whole = float(squares.sqrt())
    if limit is not None and whole > limit:
        for fragment in fragments:
            fragment.mul_(limit / whole)
    return whole


def deepspeed_config(settings: TrainSettings) -> dict[str, Any]:
    """Return the DeepSpeed configuration of `strategy: deepspeed_stage_1|2|3`; Lightning adds the keys of batches."""
    stage = int(settings.strategy[-1])
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": BUCKET,
    }
    if stage == 3:
        zero |= {"stage3_gather_16bit_weights_on_model_save": False, "stage3_prefetch_bucket_size": 50_000_000}
    else:
        zero |= {"allgather_partitions": True, "allgather_bucket_size": 200_000_000, "reduce_scatter": True}
    clipping = {} if stage == 3 else {"gradient_clipping": 0.0}  # `clip` does it
    return clipping | {
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "data_types": {"grad_accum_dtype": "fp32"},  # gradients of micro-batches are added up in float32
    }
