"""Models that are trained beside the policy. A reward or an online algorithm declares them, and the trainer does the
rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import Field

from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Component, Settings, name_of, walk
from fgrl.types import Batch, Numbers

if TYPE_CHECKING:
    from torch import Tensor

TAKEN = ("actor", "critic")
"""Names of the models that an online training has without a declaration."""


class AuxiliarySettings(Settings):
    """A model that is trained beside the policy."""

    start: ModelSpec | None = None
    """Model that it starts from; null: the model that the policy starts from."""
    lr: float | None = Field(None, gt=0, le=1)
    """Peak learning rate; null uses the policy's. The schedule, the weight decay and the limit of the gradient's norm
    are those of `train`.
    """


@dataclass(frozen=True)
class Auxiliary:
    """A model that is trained in the policy's optimizer steps, on the same micro-batches of each iteration's responses.

    At the beginning of an iteration it reads the responses with its current weights. The rollout (and each batch) then
    gets the columns `NAME_logp` (nats [B,T], at the temperature of sampling) or, with a scalar head, `NAME_values`.
    With `reference` it also gets the columns of a frozen copy of the model's start, `NAME_ref_logp` or
    `NAME_ref_values`.
    """

    settings: AuxiliarySettings
    loss: Callable[[Any, Batch], tuple[Tensor, Numbers]]
    """Function that returns the share of a micro-batch in the model's loss of the optimizer step, and metrics: see
    `OnlineAlgorithm.loss`. model: the auxiliary model alone.
    """
    head: Literal["lm", "scalar"] = "lm"
    reference: bool = False
    """True if the columns of a frozen copy of its start are needed, too (with an adapter: of the model without it)."""

    def start(self, policy: ModelSpec) -> ModelSpec:
        """Return the model that it starts from, if the policy starts from `policy`."""
        return self.settings.start or policy


@runtime_checkable
class TrainsModels(Protocol):
    """A reward or an online algorithm with models that are trained beside the policy."""

    def auxiliaries(self) -> Mapping[str, Auxiliary]:
        """Return its models by name: an identifier that names their columns, metrics and place in the product."""


class Declared(NamedTuple):
    """An auxiliary model and the component that declares it."""

    owner: Component
    auxiliary: Auxiliary


def auxiliaries(components: Iterable[Component]) -> dict[str, Declared]:
    """Return the auxiliary models of components and of all parts that they hold, by name.

    Raises ValueError for a name that is no identifier, or that two models have.
    """
    found: dict[str, Declared] = {}
    for component in components:
        for part in [component, *(value for _path, value in walk(component))]:
            for name, auxiliary in part.auxiliaries().items() if isinstance(part, TrainsModels) else ():
                kind, owner = name_of(part)
                if name in found or name in TAKEN or not re.fullmatch("[a-z][a-z0-9_]*", name):
                    raise ValueError(
                        f'the {kind} {owner} trains a model called "{name}": wants a name that no other model has, of small letters, digits and _'
                    )
                found[name] = Declared(part, auxiliary)
    return found
