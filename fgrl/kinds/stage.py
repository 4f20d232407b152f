"""Stages: the steps of a recipe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from fgrl.kinds.engine import Engine
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Component, Key, alternatives, kind, walk
from fgrl.types import Product, Ref

Accelerator = Literal["auto", "cpu", "gpu"]


KEEPS_NO_STEPS = "it keeps no models of earlier steps; rl and finetune do, with evaluate: {keep: all}"


@dataclass(frozen=True)
class MadeModel:
    """A model in the product of a stage."""

    start: ModelSpec
    """Model that the training started from."""
    head: str = "lm"
    """Head of the model: "lm", "scalar" or "token"."""
    lacks: Callable[[int], str | None] = lambda step: KEEPS_NO_STEPS
    """Function that returns the reason why the product does not contain the model of a step (`ModelSpec.step`); None if
    it does.
    """
    auxiliaries: Mapping[str, MadeModel] = field(default_factory=dict)
    """Models that were trained beside it, by name."""

    def named(self, spec: ModelSpec) -> MadeModel | None:
        """Return the model that `spec` names in the product; None if there is none of this name."""
        return self if spec.auxiliary is None else self.auxiliaries.get(spec.auxiliary)


@runtime_checkable
class Inspectable(Protocol):
    """A stage that has samples to show."""

    def inspect(self, run: Any, count: int) -> Iterator[Any]:
        """Yield `count` samples as the model sees them (`fgrl.pages.report.marked_tokens.MarkedTokens`), for `fgrl inspect`."""


@kind("stage")
class Stage(Component, ABC):
    """One step of a recipe."""

    makes: ClassVar[type[Product]]
    uses_torch: ClassVar[bool] = True
    """False saves a stage the seconds of loading torch, which is otherwise loaded to seed it."""

    def warnings(self) -> list[str]:
        """Return the settings that the stage will ignore, or follow differently than expected, for `validate`, `plan`
        and `run`.
        """
        wanted = getattr(self, "devices", 1)
        if self.processes() >= wanted:
            return []
        return [f"devices is {wanted}, and one process is enough: servers or an endpoint do the work, or no model does"]

    def processes(self) -> int:
        """Return the number of processes that compute together, one per device. If there are several, all of them call
        `run`.

        It is the field `devices` of stages that divide their work; but only one process sends requests to servers.
        """
        served = any(isinstance(part, Engine) and part.elsewhere() is not None for _path, part in walk(self))
        return 1 if served else getattr(self, "devices", 1)

    def nodes(self) -> int:
        """Return the number of machines that run these processes."""
        return 1

    def accelerator(self) -> Accelerator:
        """Return the place where `run.model` puts models: "cpu", "gpu", or "auto" for a GPU if there is one."""
        return "auto"

    @classmethod
    def computes(cls, settings: Mapping[str, Any], path: Key) -> tuple[Accelerator, bool]:
        """Return two facts that decide `auto` at a path of a recipe's settings: the stage's accelerator, and whether
        the path concerns a model all of whose weights are trained in float32.
        """
        return "auto", False

    def temporary(self) -> Sequence[str]:
        """Return the files in `run.dir` that are needed only to resume, and are removed once the stage has finished."""
        return ()

    def makes_model(self) -> MadeModel | None:
        """Return the model in the stage's product; None if it makes none, or if it is unknown."""
        return None

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        """Return the places of the stage's models, and the head that each must have: "lm", "scalar" or "token"."""
        return {}

    def misfits(self, stages: Mapping[str, Stage]) -> Iterator[tuple[Key, str]]:
        """Yield mistakes that show only together with the other `stages` of the recipe: the place in this stage, and
        the mistake.
        """
        for path, (spec, head) in self.heads().items():
            if spec.head not in (None, head):
                yield (*path, "head"), f"wants {head} or null here, got {spec.head}"
            product = stages[spec.base.stage].makes_model() if isinstance(spec.base, Ref) else None
            made = product and product.named(spec)
            if head == "lm" and made is not None and made.head != "lm":
                message = f"{spec.base!r} is a model with a {made.head} head, which has no next-token logits"
                yield (*path, "base"), f"{message}: name a language model"
        for path, part in walk(self):
            if not isinstance(part, ModelSpec) or not isinstance(part.base, Ref):
                continue
            made = stages[part.base.stage].makes_model()
            if part.step is not None and (missing := KEEPS_NO_STEPS if made is None else made.lacks(part.step)):
                yield (*path, "step"), f'stage "{part.base.stage}": {missing}'
            if made is not None and made.named(part) is None:
                others = alternatives(str(part.auxiliary), sorted(made.auxiliaries))
                yield (
                    (*path, "auxiliary"),
                    f'stage "{part.base.stage}" trains no such model beside the policy; {others}',
                )

    @abstractmethod
    def run(self, run: Any) -> Mapping[str, Any] | None:
        """Write the product to `run.out`. Return the entries of the summary."""
