"""The openai library with a witness at each attempt: what was charged, what was refused, and what nobody knows.

The library repeats an attempt that was refused (429, 5xx, waiting as the endpoint says) or broke. Limits are about attempts,
so the HTTP client under it asks a `Course` before each one and tells it how it ended. An answer that is no JSON is treated
like a connection that broke.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import time
from typing import Any, Protocol

import httpx2
import openai

NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class Course(Protocol):
    """One request on its way, over all its attempts."""

    async def admit(self) -> None:
        """Before an attempt. Raises `Left` when none may be made any more."""

    def refused(self) -> None:
        """The attempt did not reach the model."""

    def lost(self, seconds: float) -> None:
        """The attempt broke; the model may have answered."""

    def arrived(self, body: dict[str, Any], seconds: float) -> None:
        """The attempt brought this."""


class Left(openai.OpenAIError):
    """The request is not to be made any more. (The library hands its own errors on as they are.)"""


current: contextvars.ContextVar[Course] = contextvars.ContextVar("current")


class Witness(openai.DefaultAsyncHttpxClient):
    """An HTTP client that reports each attempt to `current`. An attempt may take `patience` seconds in all."""

    def __init__(self, patience: float, connections: int) -> None:
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        super().__init__(limits=limits, timeout=httpx2.Timeout(patience, connect=min(patience, 10.0)))
        self.patience = patience

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        course = current.get()
        await course.admit()
        await self._drop_spoilt(request)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.patience):
                response = await super().send(request, **options)
        except NEVER_SENT:
            course.refused()
            raise
        except TimeoutError:
            course.lost(time.perf_counter() - began)
            raise httpx2.ReadTimeout(f"no answer within {self.patience:g} s", request=request) from None
        except BaseException:
            course.lost(time.perf_counter() - began)
            raise
        seconds = time.perf_counter() - began
        if not response.is_success:
            course.refused()
            return response
        body = _answer(response.content)
        if body is None:
            course.lost(seconds)
            raise httpx2.RemoteProtocolError("what the endpoint sent is no chat completion", request=request)
        course.arrived(body, seconds)
        return response

    async def _drop_spoilt(self, request: httpx2.Request) -> None:
        """Close idle connections on which more than one answer came.

        The library would take what is left over for the answer to the next request. (It notices bytes that arrive while a
        connection is idle, not those that it has read already. There is no public way to see them.)
        """
        pool: Any = getattr(self._transport_for_url(request.url), "_pool", None)
        for connection in [] if pool is None else pool.connections:
            state = getattr(getattr(connection, "_connection", None), "_h11_state", None)
            if state is not None and connection.is_idle() and state.trailing_data[0]:
                await connection.aclose()


def connect(*, base_url: str, key: str | None, timeout: float, retries: int, connections: int) -> openai.AsyncOpenAI:
    """A client of the openai library over a `Witness`. Only an endpoint that has one is sent a key."""
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=key or "none",
        timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0)),
        max_retries=retries,
        http_client=Witness(timeout, connections),
    )


def _answer(content: bytes) -> dict[str, Any] | None:
    """The body of a chat completion; None for anything else."""
    try:
        body = json.loads(content)
        message = body["choices"][0]["message"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return body if isinstance(message, dict) else None
