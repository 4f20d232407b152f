"""Engines, which draw responses from a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from fgrl.kinds.specs import Sampling
from fgrl.registry import Component, build, kind
from fgrl.types import DrawnResponse, Prompt, Sample


@dataclass(frozen=True)
class Early:
    """Conditions under which a response is complete without an end-of-sequence token. It ends behind the first token
    that fulfils one of them.
    """

    strings: tuple[str, ...] = ()
    """Texts that end a response as soon as it contains one of them."""
    ids: frozenset[int] = frozenset()
    """Ids of tokens that end a response."""
    json_object: bool = False
    """True to end a response as soon as it has a complete, valid JSON object."""


@dataclass(frozen=True)
class DrawRequest:
    """Request for a response."""

    prompt: Prompt
    sampling: Sampling
    seed: int
    row: int
    """Number of the response: (`seed`, `row`) identifies its random stream."""
    early: Early | None = None
    """Further conditions, in addition to `Sampling.stop`."""
    sample: Sample | None = None
    """Sample that a conversation with an environment begins with (the environment makes its own prompt); None if there
    is no environment.
    """
    group: int = 0
    """Number of the prompt among all prompts that are drawn together: conversations of a group have one seed."""

    @property
    def complete_at(self) -> Early | None:
        """Return the conditions under which the response is complete without an end-of-sequence token; None if there
        are none.
        """
        stop, early = tuple(self.sampling.stop), self.early
        if not stop or early is None:
            return Early(stop) if stop else early
        return replace(early, strings=(*early.strings, *stop))


class Drawing:
    """Requests that one drawer draws as they arrive. Its iterator yields (number of the request, response) as responses
    finish, until no submitted request is left; `submit` may be called in between.

    Until then the drawer owns the weights: nothing else computes with its model.
    """

    def __init__(self, drawer: Drawer) -> None:
        self.drawer = drawer
        self.submitted = 0
        self.waiting: dict[int, DrawRequest] = {}
        """Requests that no batch has taken yet, by number."""

    def submit(self, requests: Sequence[DrawRequest]) -> range:
        """Add these requests. Return their numbers, which count from 0 in the order of submission."""
        numbers = range(self.submitted, self.submitted + len(requests))
        self.submitted = numbers.stop
        self.waiting.update(zip(numbers, requests, strict=True))
        return numbers

    def __iter__(self) -> Iterator[tuple[int, DrawnResponse]]:
        while self.waiting:
            batch, self.waiting = self.waiting, {}
            yield from zip(batch, self.drawer.draw(list(batch.values())), strict=True)

    def rest(self) -> dict[int, DrawnResponse]:
        """Return the remaining responses, all at once."""
        return dict(self)

    def all_of(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        """Return a response to each of these requests, in their order."""
        numbers = self.submit(requests)
        drawn = self.rest()
        return [drawn[number] for number in numbers]


class Drawer(ABC):
    """A model that an engine has opened. It is a context manager, which closes the model."""

    version = 0
    converses = False
    """True if its responses are conversations with an environment, from requests with a `sample`."""

    @abstractmethod
    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        """Return a response to each request, in their order.

        The drawer chooses its batches (`Sampling.batch_size` bounds them): neither they nor the order change a
        response. An engine that computes elsewhere calls `fgrl.base.stops.point()` while it waits, so that a run can
        stop.
        """

    def drawing(self) -> Drawing:
        """Return a drawing that takes requests as they arrive. Override it if responses can be yielded one by one; the
        default draws all waiting requests together.
        """
        return Drawing(self)

    def stream(self, request: DrawRequest) -> Iterator[int]:
        """Yield the token ids of one response, as soon as they are drawn. A caller that stops reading ends the
        response.
        """
        yield from self.draw([request])[0].token_ids

    def take(self, weights: Any, version: int) -> None:
        """Draw from these weights from now on. weights: the `fgrl.models.LanguageModel` that has them."""
        self.version = version

    def rest(self) -> None:  # noqa: B027
        """Free the memory that only drawing needs, until `wake` is called."""

    def wake(self) -> None:  # noqa: B027
        """Prepare to draw again after `rest`."""

    def close(self) -> None:  # noqa: B027
        """Close what `open` has opened."""

    def __enter__(self) -> Drawer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Correction:
    """Correction of a training for tokens that were drawn from another distribution than the policy's: with other
    weights, or with the same weights in other arithmetic.

    The importance weight of a token is w = exp(old_logp - drawn_logp), the ratio of the policy's probability to the
    engine's.
    """

    kind: Literal["none", "truncate", "mask"]
    """Factor of the token's advantage. truncate: min(w, `bound`). mask: w if 1 / `bound` <= w <= `bound`, else 0. none:
    1.
    """
    bound: float
    """Bound of w, above 1. Metrics report the share of tokens outside of it."""


@dataclass(frozen=True)
class Elsewhere:
    """Place where an engine computes, if it is not the process that draws; for `fgrl plan`."""

    copies: int
    """Number of servers; each has the whole model."""
    devices_each: int
    """Number of devices that share the model of a server."""
    devices: tuple[int, ...] | None
    """Devices of the machine that the engine uses; None: the engine chooses."""
    dtype: str | None
    """Type of the weights; None: the type of the model."""
    transfer: str
    """Name of the transfer that brings trained weights there."""
    sends: Literal["adapter", "weights"]
    """Part of the weights that is sent."""
    memory: float | None
    """Share of each device's memory that a server takes for weights and cache; None: as much as they need."""


@kind("engine")
class Engine(Component, ABC):
    """Engine that draws responses from models. `setup(run)` is called before `open`."""

    _beside: int = 0
    """Number of GPUs, counted from device 0, that the stage trains on."""

    @abstractmethod
    def open(self, model: Any) -> Drawer:
        """Return a drawer of a `fgrl.models.LanguageModel`. Each drawer has a separate state, so several models can be
        open.
        """

    def correction(self) -> Correction | None:
        """Return the training's correction for the responses of this engine; None if it draws from the very model that
        is trained, so there is nothing to correct. If it is not None, the drawers of the engine return
        `DrawnResponse.token_logp`.
        """
        return None

    def draws_ahead(self) -> Literal[0, 1]:
        """Return the number of rollouts that are drawn ahead while the previous one is trained on. With 1, `draw` is
        called in another thread than `take`, never at the same time.
        """
        return 0

    def refuses(self, sampling: Sampling) -> str | None:
        """Return the reason why this engine cannot draw with these settings; None if it can."""
        return None

    def elsewhere(self) -> Elsewhere | None:
        """Return the place where this engine computes; None if it is the process that draws, on its device."""
        return None

    def at_once(self, batch_size: int) -> int:
        """Return the number of responses to request in one `draw`, if the caller saves finished responses in between.
        batch_size: number of responses that this process draws at the same time.
        """
        return batch_size

    def copies_weights(self) -> bool | Literal["rounded"]:
        """Return True if a second copy of the model's weights is kept while sampling, which `fgrl plan` counts. Return
        "rounded" if this is so only if the training multiplies in another type than that of the weights.
        """
        return False


class CorrectedEngine(Engine):
    """Engine that computes with other arithmetic than the training; the training corrects for the difference."""

    correct: Literal["none", "truncate", "mask"] = "truncate"
    """Correction for the difference between the engine's probabilities and those of the training. `truncate`: the
    advantage of a token is multiplied by the ratio of the two, at most `bound`. `mask`: it is multiplied by the ratio
    if that is between 1 / `bound` and `bound`, else by 0. `none`: no correction.
    """
    bound: float = Field(2.0, gt=1, le=1000)
    """Bound of that ratio."""

    def correction(self) -> Correction:
        return Correction(self.correct, self.bound)


def default_engine() -> Engine:
    """Return the engine of transformers, in this process."""
    return build(Engine, "hf")
