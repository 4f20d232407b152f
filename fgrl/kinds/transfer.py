"""Transfers: they bring the weights of a model to the servers of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fgrl.base import stops
from fgrl.registry import Component, kind

S = TypeVar("S")


@dataclass(frozen=True)
class Serving:
    """What a server is started with."""

    model: str
    """Folder or hub id."""
    arguments: tuple[str, ...] = ()
    """Of vLLM's command line."""
    environment: dict[str, str] = field(default_factory=dict)


class ServerGone(Exception):
    """No answer: the connection failed or was cut, or the time limit was reached."""


class ServerRefused(Exception):
    """The server answers that it cannot."""


def failures(servers: Sequence[S], call: Callable[[S], Any]) -> dict[int, str]:
    """Call a function with one server after the other. Return why it failed, by the place of the server."""
    failed: dict[int, str] = {}
    for place, server in enumerate(servers):
        stops.point()
        try:
            call(server)
        except (ServerGone, ServerRefused) as problem:
            failed[place] = str(problem)
    return failed


class Parcel(ABC):
    """The weights of one version, ready to be brought to any server, also to one that is started later.

    A server is a `fgrl.rollouts.serving.connection.Connection`; limits are seconds. Calls raise `ServerGone` for a server that
    does not answer, and `ServerRefused`.
    """

    version: str
    """What servers report that have these weights."""
    name: str
    """Under which they are asked for answers."""

    @abstractmethod
    def deliver(self, server: Any, limit: float) -> None:
        """Bring the weights to a server."""

    def deliver_to_all(self, servers: Sequence[Any], limit: float) -> dict[int, str]:
        """Bring the weights to servers, here to one after the other. Return what went wrong, by the place of the server: why it has
        to be replaced, or "" where it is well and only has to be brought the weights again.
        """
        return failures(servers, lambda server: self.deliver(server, limit))

    @abstractmethod
    def arrived(self, server: Any, limit: float) -> str:
        """Return the version of the weights that a server has, as it reports it itself."""

    @abstractmethod
    def differing(self, server: Any, limit: float) -> list[str]:
        """Return the tensors that are not those that were sent, by comparing a checksum of each."""

    def discard(self, servers: Iterable[Any], limit: float) -> None:  # noqa: B027
        """Free what servers and disk keep of this version: it is not needed any more."""


@kind("transfer")
class Transfer(Component, ABC):
    """Brings a model's weights to servers. `setup(run)` comes first."""

    @abstractmethod
    def serving(self, model: Any, dtype: str, folder: Path) -> Serving:
        """Return what a server of the model (a `fgrl.models.LanguageModel`) is started with, in `dtype`. `folder` is for
        files that it needs.

        Raises `UsageError` for a model that cannot be brought this way, `Unavailable` where this machine cannot do it.
        """

    @abstractmethod
    def pack(self, model: Any, version: str, dtype: str, folder: Path, *, keep: bool) -> Parcel:
        """Return the model's weights as they are now. keep: they are still needed when the model has changed."""
