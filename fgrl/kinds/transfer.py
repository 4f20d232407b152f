"""Transfers, which bring the weights of a model to the servers of an engine."""

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
    """Model and options with which a server is started."""

    model: str
    """Folder or hub id."""
    arguments: tuple[str, ...] = ()
    """Arguments of vLLM's command line."""
    environment: dict[str, str] = field(default_factory=dict)


class ServerGone(Exception):
    """Raised if a server does not answer: the connection failed or was cut, or the time limit was reached."""


class ServerRefused(Exception):
    """Raised if a server answers with a refusal."""


def failures(servers: Sequence[S], call: Callable[[S], Any]) -> dict[int, str]:
    """Call a function with one server after the other. Return the errors, by the place of the server."""
    failed: dict[int, str] = {}
    for place, server in enumerate(servers):
        stops.point()
        try:
            call(server)
        except (ServerGone, ServerRefused) as problem:
            failed[place] = str(problem)
    return failed


class Parcel(ABC):
    """The weights of one version, ready to be brought to any server, also to a server that is started later.

    A server is a `fgrl.rollouts.serving.connection.Connection`; limits are seconds. Calls raise `ServerGone` if a
    server does not answer, and `ServerRefused`.
    """

    version: str
    """Version that servers with these weights report."""
    name: str
    """Name under which answers are requested from these weights."""

    @abstractmethod
    def deliver(self, server: Any, limit: float) -> None:
        """Bring the weights to a server."""

    def deliver_to_all(self, servers: Sequence[Any], limit: float) -> dict[int, str]:
        """Bring the weights to servers, here one after the other. Return the errors, by the place of the server: the
        reason why it has to be replaced, or "" if it works and only needs the weights again.
        """
        return failures(servers, lambda server: self.deliver(server, limit))

    @abstractmethod
    def arrived(self, server: Any, limit: float) -> str:
        """Return the version of the weights that a server reports."""

    @abstractmethod
    def differing(self, server: Any, limit: float) -> list[str]:
        """Return the tensors that differ from those that were sent, by a checksum of each."""

    def discard(self, servers: Iterable[Any], limit: float) -> None:  # noqa: B027
        """Free the memory of servers and disk that this version takes: it is not needed any more."""


@kind("transfer")
class Transfer(Component, ABC):
    """Transfer of a model's weights to servers. `setup(run)` is called first."""

    @abstractmethod
    def serving(self, model: Any, dtype: str, folder: Path) -> Serving:
        """Return the options with which a server of the model (a `fgrl.models.LanguageModel`) is started, in `dtype`.
        `folder` is for files that it needs.

        Raises `UsageError` for a model that cannot be brought this way, `Unavailable` if this machine cannot do it.
        """

    @abstractmethod
    def pack(self, model: Any, version: str, dtype: str, folder: Path, *, keep: bool) -> Parcel:
        """Return the model's weights in their current state. keep: they are still needed after the model has
        changed.
        """
