"""Connections of the annotation server: nobody keeps others out by holding some without asking for anything.

A request must arrive within `REQUEST_SECONDS` of its connection, or of the answer before it. When there are too many
connections, of one address or of all, the one that has been idle longest is closed for the new one. Behind a proxy all
have the proxy's address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 20.0
"""How long the head of a request may take to arrive."""
ANSWER_SECONDS = 120.0
"""How long a request may take, its body and the reading of its answer included."""
CONNECTIONS = 400
"""At the same time."""
PER_ADDRESS = 200
"""Of them from one address."""


class Connection(H11Protocol):
    """uvicorn's HTTP connection with these limits."""

    def connection_made(self, transport: Any) -> None:
        """Note that a client has connected."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._since = self.loop.time()
        everyone: set[Any] = self.connections
        others = [each for each in everyone if each is not self]
        self._make_room(others, CONNECTIONS)
        self._make_room([each for each in others if _host(each) == _host(self)], PER_ADDRESS)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
        self._stop()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Note that an answer was sent; the next request may come."""
        super().on_response_complete()
        self._since = self.loop.time()
        self._wait()

    @property
    def idle(self) -> bool:
        """True if no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self, others: Iterable[Any], most: int) -> None:
        there = [each for each in others if not each.transport.is_closing()]
        if len(there) >= most:
            idle = [each for each in there if each.idle]
            (min(idle, key=lambda each: each._since) if idle else self).transport.abort()

    def _wait(self) -> None:
        self._stop()
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._late)

    def _late(self) -> None:
        if self.idle:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _host(connection: Any) -> str | None:
    return None if connection.client is None else connection.client[0]
