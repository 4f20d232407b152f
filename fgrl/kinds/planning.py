"""Upper bounds on the input, output and requests of stages and components, known before anything runs.

They are a separate protocol (`Planning`): no kind has its methods, and a component without bounds defines none.
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
    """Upper bound on the output of a stage that has not run."""

    samples: int
    responses: int | None = None
    """Number of responses of each sample; None if it is unknown."""

    def after(self, skip: int, limit: int | None) -> Expected:
        """Return the rest after `skip` samples are passed over and `limit` are taken (None takes all)."""
        left = max(0, self.samples - skip)
        return Expected(left if limit is None else min(left, limit), self.responses)


class Peek(Protocol):
    """Access of a stage to what exists before it runs."""

    limit: int | None
    cache: Path

    def path(self, ref: Ref[Any]) -> Path:
        """Return the product folder of a finished stage. Raises `fgrl.base.errors.NotYet`."""

    def stage(self, ref: Ref[Any]) -> Any:
        """Return the stage that makes the product, as the recipe describes it; it need not have run."""

    def expects(self, ref: Ref[Any]) -> Expected | None:
        """Return the upper bound on the output of another stage (`Planning.expects`), finished or not."""

    def say(self, text: str) -> None: ...


UNDRAWN = "."
"""Placeholder for a response that is not drawn yet: an empty one would not be judged."""


@dataclass(frozen=True)
class AtMost:
    """Upper bound on requests about texts that do not exist yet."""

    request: Request
    """One of the requests, with everything filled in that is known."""
    calls: int
    """Upper bound on the number of requests."""
    missing_tokens: int
    """Upper bound on the number of tokens that the texts add to each prompt."""
    fewer: bool = True
    """True if there may be fewer calls, since requests about equal texts are sent once."""


@dataclass(frozen=True)
class ToDraw:
    """Responses that a stage will draw, as far as they are known before it runs."""

    prompts: Callable[[], Sequence[Sample]]
    """Function that reads the prompts. Raises `fgrl.base.errors.NotYet` if another stage has to make them first."""
    size: Callable[[], tuple[int, int]]
    """Function that returns upper bounds on prompts and on turns of each; it reads the prompts only if it must."""
    models: Sequence[str]
    """Names of the models that respond."""
    per_prompt: int
    """Number of responses of each model to each prompt."""
    sampling: Sampling
    """Settings that limit the length of the responses."""

    def about_each(self, asks: Callable[[Sample, str], Sequence[Request]]) -> list[AtMost]:
        """Return an upper bound on requests for all responses. asks: returns the requests about one response."""
        responses = self.per_prompt * len(self.models)
        return [
            AtMost(request, responses, self.sampling.max_new_tokens)
            for prompt in self.prompts()
            for request in asks(prompt, UNDRAWN)
        ]


class Planning(Protocol):
    """Bounds that a component or a stage may state. Every method is optional: `stated` asks for it."""

    def expects(self, peek: Peek) -> Expected | None:
        """Return an upper bound on the output of a stage, or on the records of a reader that need not be read. Return
        None if it is unknown without reading or running.
        """

    def makes_at_most(self, expected: Expected) -> Expected | None:
        """Return an upper bound on an annotator's output for samples that do not exist yet; None if it is unknown. An
        annotator without this method returns as many as it gets.
        """

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | int | None:
        """Return a bound on the requests to a language model about input that does not exist yet; None if it is
        unknown. An annotator (expected: `Expected`) returns the number of requests, a metric or a reward (expected:
        `ToDraw`) the requests.
        """

    def estimate(self, peek: Peek) -> dict[str, Any]:
        """Return what a stage will need, for `fgrl plan`, ready for JSON by topic: "parameters", "memory", "calls".

        Raises `fgrl.base.errors.NotYet` (from `peek.path`) if that depends on a stage that has not run.
        """

    def work(self, peek: Peek) -> Iterable[Any]:
        """Return the amount of computation of a stage: `fgrl.experiments.stages.counting.Work`. Raises `NotYet` as
        `estimate` does, and `counting.Uncounted` or `fgrl.models.shapes.Unknown` with the reason if it is unknown.
        """


Bound = Literal["expects", "makes_at_most", "asks_at_most", "estimate", "work"]


def stated(component: object, bound: Bound, given: Any, otherwise: Any = None) -> Any:
    """Return the bound that a component states with this method of `Planning`; `otherwise` if it does not have the
    method.
    """
    method = getattr(component, bound, None)
    return otherwise if method is None else method(given)
