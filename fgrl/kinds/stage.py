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
    """The model of which it is a trained version."""
    head: str = "lm"
    """The head of the model: "lm", "scalar" or "token"."""
    lacks: Callable[[int], str | None] = lambda step: KEEPS_NO_STEPS
    """Returns why the product does not contain the model of a step (`ModelSpec.step`); None: it does."""
    auxiliaries: Mapping[str, MadeModel] = field(default_factory=dict)
    """The models that were trained beside it, by name."""

    def named(self, spec: ModelSpec) -> MadeModel | None:
        """Return the model that `spec` names in the product; None: there is none of this name."""
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
    """False spares a stage the seconds that loading torch takes, just to seed it."""

    def warnings(self) -> list[str]:
        """Return what the stage will ignore or do otherwise than its settings suggest, for `validate`, `plan` and
        `run`.
        """
        wanted = getattr(self, "devices", 1)
        if self.processes() >= wanted:
            return []
        return [f"devices is {wanted}, and one process is enough: servers or an endpoint do the work, or no model does"]

    def processes(self) -> int:
        """Return how many processes compute together, one a device. Several are started, and all call `run`.

        It is the field `devices` of stages that share their work out; but servers are asked by one process.
        """
        served = any(isinstance(part, Engine) and part.elsewhere() is not None for _path, part in walk(self))
        return 1 if served else getattr(self, "devices", 1)

    def nodes(self) -> int:
        """Return how many machines these processes are on."""
        return 1

    def accelerator(self) -> Accelerator:
        """Return where `run.model` puts models: "cpu", "gpu", or "auto" for a GPU if there is one."""
        return "auto"

    @classmethod
    def computes(cls, settings: Mapping[str, Any], path: Key) -> tuple[Accelerator, bool]:
        """Return what decides `auto` at a path of settings as a recipe has them: the stage's accelerator, and whether
        the path concerns a model all of whose weights are trained in float32.
        """
        return "auto", False

    def temporary(self) -> Sequence[str]:
        """Return files in `run.dir` that serve to resume, and are removed once the stage has finished."""
        return ()

    def makes_model(self) -> MadeModel | None:
        """Return the model in the stage's product; None: it makes none, or it is unknown."""
        return None

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        """Return where the stage has models, and the head that each must have: "lm", "scalar" or "token"."""
        return {}

    def misfits(self, stages: Mapping[str, Stage]) -> Iterator[tuple[Key, str]]:
        """Yield mistakes that only show beside the other `stages` of the recipe: where in this stage, and what is
        wrong.
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
        """Write the product to `run.out`; return what the summary reports."""
