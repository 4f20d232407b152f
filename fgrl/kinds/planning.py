"""What is known before a stage runs: what it will get and make, and what that takes, at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fgrl.specs import Sampling
from fgrl.types import Ref, Request, Sample


@dataclass(frozen=True)
class Expected:
    """What a stage that has not run will make, at most."""

    samples: int
    responses: int | None = None
    """Of each sample; None is unknown."""

    def after(self, skip: int, limit: int | None) -> Expected:
        """What is left when `skip` samples are passed over and `limit` are taken (None takes all)."""
        left = max(0, self.samples - skip)
        return Expected(left if limit is None else min(left, limit), self.responses)


class Peek(Protocol):
    """What a stage may look at before it runs."""

    limit: int | None
    cache: Path

    def path(self, ref: Ref[Any]) -> Path:
        """The product folder of a finished stage. Raises `fgrl.errors.NotYet`."""

    def stage(self, ref: Ref[Any]) -> Any:
        """The stage that makes it, as the recipe describes it; it need not have run."""

    def expects(self, ref: Ref[Any]) -> Expected | None:
        """What another stage will make at most (`Stage.expects`), finished or not."""

    def say(self, text: str) -> None: ...


UNDRAWN = "."
"""Stands for a response that is not drawn yet: an empty one would not be judged."""


@dataclass(frozen=True)
class AtMost:
    """Requests about texts that do not exist yet."""

    request: Request
    """One of them, with everything filled in that is known."""
    calls: int
    """How many there are, at most."""
    missing_tokens: int
    """What the texts add to the prompt of each, at most."""
    fewer: bool = True
    """There may be fewer calls, since requests about equal texts are sent once."""


@dataclass(frozen=True)
class ToDraw:
    """Responses that a stage will draw, as far as they are known before it runs."""

    prompts: Callable[[], Sequence[Sample]]
    """Reads the prompts. Raises `fgrl.errors.NotYet` where another stage has to make them first."""
    size: Callable[[], tuple[int, int]]
    """How many prompts there are and how many turns each has, at most; reads the prompts only where it must."""
    models: Sequence[str]
    """Whose responses they are."""
    per_prompt: int
    """Responses of each model to each prompt."""
    sampling: Sampling
    """Limits their length."""

    def about_each(self, asks: Callable[[Sample, str], Sequence[Request]]) -> list[AtMost]:
        """What `asks(prompt, response)` comes to over all responses."""
        responses = self.per_prompt * len(self.models)
        return [
            AtMost(request, responses, self.sampling.max_new_tokens)
            for prompt in self.prompts()
            for request in asks(prompt, UNDRAWN)
        ]


@dataclass(frozen=True)
class DrawnShape:
    """The size of responses that a stage will draw, at most."""

    responses: int
    prompt_tokens: int
    """Of each response's prompt."""
    response_tokens: int
    """Of each response (`sampling.max_new_tokens`)."""

    @property
    def tokens(self) -> int:
        """Of all prompts and responses: what one pass over them reads."""
        return self.responses * (self.prompt_tokens + self.response_tokens)


@dataclass(frozen=True)
class PolicyWork:
    """What a component asks of the policy beyond drawing responses and one pass over them, at most."""

    forward_tokens: int = 0
    """Tokens of prompts and responses in further passes."""
    backward_tokens: int = 0
    """Those of passes with a gradient to the inputs."""
    continuations: int = 0
    """How many are drawn."""
    generated_tokens: int = 0
    """Tokens of continuations."""

    def __add__(self, other: PolicyWork) -> PolicyWork:
        return PolicyWork(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def times(self, count: int) -> PolicyWork:
        return PolicyWork(**{name: value * count for name, value in vars(self).items()})


@runtime_checkable
class StatesRequests(Protocol):
    """A component that states how much it asks of a language model."""

    def asks_at_most(self, expected: Any) -> Sequence[AtMost] | int | None:
        """A bound for input that does not exist yet: the requests, or only their number; None when it is not known.

        expected: `Expected` of an annotator, `ToDraw` of a metric or a reward.
        """


@runtime_checkable
class StatesPolicyWork(Protocol):
    """A reward, a relevance or an online algorithm that states what it asks of the policy."""

    def policy_work(self, drawn: DrawnShape) -> PolicyWork | None:
        """At most what it asks for so many responses, without what rewards and relevances that it holds ask; None when it is not known.
        Needed only where `needs` contain "policy"."""


def asks_at_most(component: object, expected: Expected | ToDraw) -> Sequence[AtMost] | int | None:
    """What a component states; None when it states nothing."""
    return component.asks_at_most(expected) if isinstance(component, StatesRequests) else None
