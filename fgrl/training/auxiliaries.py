"""Auxiliary models of an online training (see `fgrl.kinds.auxiliary`): loaded, read before rewards, trained with the
policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fgrl import models, rollouts
from fgrl.kinds import Numbers, Run
from fgrl.kinds.auxiliary import Declared
from fgrl.kinds.functions import checked_loss
from fgrl.kinds.specs import ModelSpec
from fgrl.types import Batch, Rollout

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.models import LanguageModel


@dataclass
class Loaded:
    """An auxiliary model with its weights."""

    declared: Declared
    start: ModelSpec
    model: LanguageModel
    reference: LanguageModel | None
    """Frozen copy of its start; None if it declares none, or if the reference is the model without its adapter."""

    @property
    def lr(self) -> float | None:
        """Return its peak learning rate; None: the policy's."""
        return self.declared.auxiliary.settings.lr


def load(declared: Mapping[str, Declared], run: Run, policy: ModelSpec, *, trainable: bool = True) -> dict[str, Loaded]:
    """Return the models by name. policy: the start of a model that names none. trainable: False for the models before
    training.
    """
    loaded = {}
    for name, each in declared.items():
        auxiliary, start = each.auxiliary, each.auxiliary.start(policy)
        if not trainable:
            start = start.model_copy(update={"lora": None})
        model = run.model(start, head=auxiliary.head, trainable=trainable)
        separate = auxiliary.reference and not start.lora
        reference = run.model(start, head=auxiliary.head) if separate else None
        loaded[name] = Loaded(each, start, model, reference)
    return loaded


def columns(rollout: Rollout, loaded: Mapping[str, Loaded], micro_batch_size: int) -> dict[str, Tensor]:
    """Return the outputs of each model and its reference for the responses, as columns [B,T] by name."""
    made: dict[str, Tensor] = {}
    for name, each in loaded.items():
        made |= _read(rollout, each.model, name, micro_batch_size)
        if each.declared.auxiliary.reference:
            reference = each.model if each.reference is None else each.reference
            made |= _read(rollout, reference, f"{name}_ref", micro_batch_size, adapter=each.reference is not None)
    return made


def _read(
    rollout: Rollout, model: LanguageModel, name: str, micro_batch_size: int, *, adapter: bool = True
) -> dict[str, Tensor]:
    if model.head == "lm":
        scores = rollouts.score_with(rollout, model, micro_batch_size=micro_batch_size, adapter=adapter)
        return {f"{name}_logp": scores.logp}
    with torch.no_grad(), models.evaluating(model):
        return rollouts.in_micro_batches(
            rollout, lambda part: {f"{name}_values": model.values(part, adapter=adapter)}, micro_batch_size, [model]
        )


def loss(loaded: Mapping[str, Loaded], batch: Batch) -> tuple[Tensor | float, Numbers]:
    """Return the sum of the models' losses of a micro-batch, and their metrics as `NAME/metric`.

    The models share no weights, so the gradient of each is that of its own loss.
    """
    total: Tensor | float = 0.0
    metrics: Numbers = {}
    for name, each in loaded.items():
        own, numbers = checked_loss(each.declared.owner, each.declared.auxiliary.loss(each.model, batch))
        total = total + own
        metrics |= {f"{name}/{key}": value for key, value in numbers.items()}
    return total, metrics
