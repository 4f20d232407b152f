"""Engines: they draw responses from a model."""

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
    """Where a response is complete although it has no end-of-sequence token: behind the first token with which one of
    these holds.
    """

    strings: tuple[str, ...] = ()
    """The text of the response contains one of them."""
    ids: frozenset[int] = frozenset()
    """The token is one of them."""
    json_object: bool = False
    """The text has a complete, valid JSON object."""


@dataclass(frozen=True)
class DrawRequest:
    """A response that is to be drawn."""

    prompt: Prompt
    sampling: Sampling
    seed: int
    row: int
    """(`seed`, `row`) names the random stream of the response."""
    early: Early | None = None
    """Besides `Sampling.stop`."""
    sample: Sample | None = None
    """What a conversation with an environment begins with, which makes its own prompt; None: there is no environment."""
    group: int = 0
    """Number of the prompt among all that are drawn together: conversations of a group have one seed."""

    @property
    def complete_at(self) -> Early | None:
        """Return where the response is complete without an end-of-sequence token; None: nowhere."""
        stop, early = tuple(self.sampling.stop), self.early
        if not stop or early is None:
            return Early(stop) if stop else early
        return replace(early, strings=(*early.strings, *stop))


class Drawing:
    """Requests that one drawer draws as they come. Iterated, it yields (number of the request, response) as responses
    finish, until nothing that was submitted is left; `submit` may be called in between.

    The weights are the drawer's until then: nothing else computes with its model.
    """

    def __init__(self, drawer: Drawer) -> None:
        self.drawer = drawer
        self.submitted = 0
        self.waiting: dict[int, DrawRequest] = {}
        """Requests that no batch has taken yet, by number."""

    def submit(self, requests: Sequence[DrawRequest]) -> range:
        """Draw these too. Return their numbers, which count from 0 in the order of submission."""
        numbers = range(self.submitted, self.submitted + len(requests))
        self.submitted = numbers.stop
        self.waiting.update(zip(numbers, requests, strict=True))
        return numbers

    def __iter__(self) -> Iterator[tuple[int, DrawnResponse]]:
        while self.waiting:
            batch, self.waiting = self.waiting, {}
            yield from zip(batch, self.drawer.draw(list(batch.values())), strict=True)

    def rest(self) -> dict[int, DrawnResponse]:
        """Return what is left, all at once."""
        return dict(self)

    def all_of(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        """Return a response to each of these requests, in their order."""
        numbers = self.submit(requests)
        drawn = self.rest()
        return [drawn[number] for number in numbers]


class Drawer(ABC):
    """A model that an engine has opened. A context manager, which closes it."""

    version = 0
    converses = False
    """True if its responses are conversations with an environment: it takes requests with a `sample`."""

    @abstractmethod
    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        """Return a response to each request, in their order.

        The drawer chooses its batches (`Sampling.batch_size` bounds them): neither they nor the order change a
        response. An engine that computes elsewhere calls `fgrl.base.stops.point()` while it waits, so that a run can
        stop.
        """

    def drawing(self) -> Drawing:
        """Return a drawing that takes requests as they come. Override it where responses can be given one by one; the
        default draws all that wait together.
        """
        return Drawing(self)

    def stream(self, request: DrawRequest) -> Iterator[int]:
        """Token ids of one response, as soon as they are there. Who stops reading ends the response."""
        yield from self.draw([request])[0].token_ids

    def take(self, weights: Any, version: int) -> None:
        """Draw from these weights from now on. weights: the `fgrl.models.LanguageModel` that has them."""
        self.version = version

    def rest(self) -> None:  # noqa: B027
        """Free the memory that only drawing needs, until `wake`."""

    def wake(self) -> None:  # noqa: B027
        """Be ready to draw again after `rest`."""

    def close(self) -> None:  # noqa: B027
        """End what `open` started."""

    def __enter__(self) -> Drawer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Correction:
    """How a training corrects for tokens that were drawn from another distribution than the policy's: with other
    weights, or with the same weights in other arithmetic.

    The importance weight of a token is w = exp(old_logp - drawn_logp), the policy's probability over that of the engine.
    """

    kind: Literal["none", "truncate", "mask"]
    """truncate: the token's advantage is multiplied by min(w, `bound`). mask: by w where 1 / `bound` <= w <= `bound`, by 0
    elsewhere. none: by 1.
    """
    bound: float
    """Bound of w, above 1. Also the one of the reported share of tokens outside of it."""


@dataclass(frozen=True)
class Elsewhere:
    """Where an engine computes that does not compute in the process that draws, for `fgrl plan`."""

    copies: int
    """Servers; each has the whole model."""
    devices_each: int
    """Devices that share the model of a server."""
    devices: tuple[int, ...] | None
    """Which devices of the machine; None: the engine chooses."""
    dtype: str | None
    """Type of the weights; None: that of the model."""
    transfer: str
    """How trained weights go there."""
    sends: Literal["adapter", "weights"]
    """What of them."""
    memory: float | None
    """Share of each device that a server takes for weights and cache; None: what they need."""


@kind("engine")
class Engine(Component, ABC):
    """Draws responses from models. `setup(run)` comes before `open`."""

    _beside: int = 0
    """How many GPUs, from 0, the stage trains on."""

    @abstractmethod
    def open(self, model: Any) -> Drawer:
        """Return a drawer of a `fgrl.models.LanguageModel`. Each has a separate state, so an engine may have several
        models open.
        """

    def correction(self) -> Correction | None:
        """Return how a training corrects for what this engine draws; None: it draws from the very model that is trained,
        and there is nothing to correct. Its drawers return `DrawnResponse.token_logp` where this is not None.
        """
        return None

    def draws_ahead(self) -> Literal[0, 1]:
        """Return how many rollouts are drawn ahead, while the one before is trained on. With 1, `draw` is called in another
        thread than `take`, never at the same time.
        """
        return 0

    def refuses(self, sampling: Sampling) -> str | None:
        """Return why this engine cannot draw in this way; None: it can."""
        return None

    def elsewhere(self) -> Elsewhere | None:
        """Return where this engine computes; None: in the process that draws, on its device."""
        return None

    def at_once(self, batch_size: int) -> int:
        """Return how many responses to ask for in one `draw`, where a caller keeps what is finished in between.
        batch_size: how many are drawn at the same time in this process.
        """
        return batch_size

    def copies_weights(self) -> bool | Literal["rounded"]:
        """Return True if a second copy of the model's weights is kept while sampling, which `fgrl plan` counts; "rounded" if
        that is so only where the training multiplies in another type than that of the weights.
        """
        return False


class CorrectedEngine(Engine):
    """An engine that does not compute as the training does, which corrects for the difference."""

    correct: Literal["none", "truncate", "mask"] = "truncate"
    """How a training corrects for the difference between the engine's probabilities and its own. `truncate`: the advantage of a
    token is multiplied by the ratio of the two, at most `bound`. `mask`: by the ratio where it is between 1 / `bound` and `bound`,
    by 0 elsewhere. `none`: not at all.
    """
    bound: float = Field(2.0, gt=1, le=1000)
    """Bound of that ratio."""

    def correction(self) -> Correction:
        return Correction(self.correct, self.bound)


def default_engine() -> Engine:
    """Return transformers, in this process."""
    return build(Engine, "hf")
