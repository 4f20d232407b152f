"""Upper bounds of what stages and components will get, make and ask for, known before anything runs.

They are a facet apart (`Planning`): no kind has its methods, and a component without bounds states none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from fgrl.kinds.specs import Sampling
from fgrl.types import Ref, Request, Sample


@dataclass(frozen=True)
class Expected:
    """Upper bound of what a stage that has not run will make."""

    samples: int
    responses: int | None = None
    """Responses of each sample; None: unknown."""

    def after(self, skip: int, limit: int | None) -> Expected:
        """Return what is left when `skip` samples are passed over and `limit` are taken (None takes all)."""
        left = max(0, self.samples - skip)
        return Expected(left if limit is None else min(left, limit), self.responses)


class Peek(Protocol):
    """What a stage may look at before it runs."""

    limit: int | None
    cache: Path

    def path(self, ref: Ref[Any]) -> Path:
        """Return the product folder of a finished stage. Raises `fgrl.base.errors.NotYet`."""

    def stage(self, ref: Ref[Any]) -> Any:
        """Return the stage that makes it, as the recipe describes it; it need not have run."""

    def expects(self, ref: Ref[Any]) -> Expected | None:
        """Return what another stage will make at most (`Planning.expects`), finished or not."""

    def say(self, text: str) -> None: ...


UNDRAWN = "."
"""Stands for a response that is not drawn yet: an empty one would not be judged."""


@dataclass(frozen=True)
class AtMost:
    """Requests about texts that do not exist yet."""

    request: Request
    """One of them, with everything filled in that is known."""
    calls: int
    """Upper bound on requests."""
    missing_tokens: int
    """Upper bound on tokens that the texts add to each prompt."""
    fewer: bool = True
    """True if there may be fewer calls, since requests about equal texts are sent once."""


@dataclass(frozen=True)
class ToDraw:
    """Responses that a stage will draw, as far as they are known before it runs."""

    prompts: Callable[[], Sequence[Sample]]
    """Reads the prompts. Raises `fgrl.base.errors.NotYet` where another stage has to make them first."""
    size: Callable[[], tuple[int, int]]
    """Upper bounds on prompts and on turns of each; reads the prompts only where it must."""
    models: Sequence[str]
    """Names of the models that respond."""
    per_prompt: int
    """Responses of each model to each prompt."""
    sampling: Sampling
    """Limits their length."""

    def about_each(self, asks: Callable[[Sample, str], Sequence[Request]]) -> list[AtMost]:
        """Return an upper bound on requests for all responses, from the requests about one."""
        responses = self.per_prompt * len(self.models)
        return [
            AtMost(request, responses, self.sampling.max_new_tokens)
            for prompt in self.prompts()
            for request in asks(prompt, UNDRAWN)
        ]


class Planning(Protocol):
    """The bounds that a component or a stage may state. Every method is optional: `stated` asks for it."""

    def expects(self, peek: Peek) -> Expected | None:
        """Return an upper bound of what a stage makes, or of what a reader gives that need not be read; None: unknown
        without reading or running.
        """

    def makes_at_most(self, expected: Expected) -> Expected | None:
        """Return an upper bound of what an annotator makes of samples that do not exist yet; None: unknown. An
        annotator without this method makes what it gets.
        """

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | int | None:
        """Return a bound on what is asked of a language model about input that does not exist yet: of an annotator
        (expected: `Expected`) the number of requests, of a metric or a reward (expected: `ToDraw`) the requests; None:
        unknown.
        """

    def estimate(self, peek: Peek) -> dict[str, Any]:
        """Return what a stage will take, for `fgrl plan`, JSON-ready by topic: "parameters", "memory", "calls".

        Raises `fgrl.base.errors.NotYet` (from `peek.path`) where that depends on a stage that has not run.
        """

    def work(self, peek: Peek) -> Iterable[Any]:
        """Return how much a stage computes: `fgrl.experiments.stages.counting.Work`. Raises `NotYet` as `estimate` does, and
        `counting.Uncounted` or `fgrl.models.shapes.Unknown` with the reason where that is not known.
        """


Bound = Literal["expects", "makes_at_most", "asks_at_most", "estimate", "work"]


def stated(component: object, bound: Bound, given: Any, otherwise: Any = None) -> Any:
    """Return what a component states with this method of `Planning`; `otherwise` if it does not have the method."""
    method = getattr(component, bound, None)
    return otherwise if method is None else method(given)
