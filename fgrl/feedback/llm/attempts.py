"""The openai library over an HTTP client that reports every attempt: answered, refused, or lost with unknown cost.

The library repeats an attempt that was refused (429, 5xx, waiting as long as the endpoint asks) or broke. Limits are
about attempts, so the HTTP client below it asks an `AttemptObserver` before each attempt and reports how the attempt
ended. An answer that is no chat completion is treated like a broken connection.

A redirect is not followed: the key and the prompts would go wherever an endpoint says. From an endpoint that has answered
before it is a passing fault like a 5xx. Nothing that an endpoint sends
is parsed by a library: the body is read here, of bounded size, and the openai library gets a response that is made of
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import time
from typing import Any, Protocol

import httpx2
import openai

NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
CONNECT_TIMEOUT = 10.0
"""Longest wait for a connection, in seconds."""
LARGEST_ANSWER = 64 * 2**20
"""Bytes of a response's body that are read."""
PAUSES = ("retry-after", "retry-after-ms", "x-should-retry")
"""Headers from which the openai library reads when to try again."""


class AttemptObserver(Protocol):
    """Follows one request over all its attempts."""

    async def admit(self) -> None:
        """Begin an attempt. Waits until it may start; raises `Abandoned` if no more attempts may be made."""

    def refused(self) -> None:
        """Note that the attempt did not reach the model."""

    def lost(self, seconds: float) -> None:
        """Note that the attempt broke; the model may have answered."""

    def answered(self, body: dict[str, Any], seconds: float) -> None:
        """Note that the attempt returned this chat completion."""


class Abandoned(openai.OpenAIError):
    """The request must not be attempted (any more). The openai library passes its own errors on unchanged."""


observer: contextvars.ContextVar[AttemptObserver] = contextvars.ContextVar("observer")
"""Observes the attempts of the current task."""


class ObservedHttpClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that reports each attempt to `observer`. An attempt may take `timeout` seconds in total.

    Every attempt has a separate connection: on a shared one, an answer that a server sends twice would be taken for the
    answer to the next request.
    """

    def __init__(self, timeout: float, connections: int) -> None:
        limits = httpx2.Limits(max_connections=connections)
        super().__init__(
            limits=limits,
            timeout=_phases(timeout),
            follow_redirects=False,
            headers={"Connection": "close", "Accept-Encoding": "identity"},
        )
        self.seconds_per_attempt = timeout
        self.has_answered = False

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        watching = observer.get()
        await watching.admit()
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.seconds_per_attempt):
                response = await super().send(request, stream=True, **options)
                content = await _content(response)
        except NEVER_SENT:
            watching.refused()
            raise
        except TimeoutError:
            watching.lost(time.perf_counter() - started)
            message = f"no answer within {self.seconds_per_attempt:g} s"
            raise httpx2.ReadTimeout(message, request=request) from None
        except BaseException:
            watching.lost(time.perf_counter() - started)
            raise
        seconds = time.perf_counter() - started
        headers = {name: response.headers[name] for name in PAUSES if name in response.headers}
        if not response.is_success:
            watching.refused()
            if response.has_redirect_location:
                content = _place(response).encode()
            if response.is_redirect and self.has_answered:
                headers["x-should-retry"] = "true"
            return httpx2.Response(response.status_code, headers=headers, content=_error(content), request=request)
        body = _chat_completion(content)
        if body is None:
            watching.lost(seconds)
            wanted = f"chat completion (uncompressed, at most {LARGEST_ANSWER / 2**20:.0f} MiB)"
            raise httpx2.RemoteProtocolError(f"what the endpoint sent is no {wanted}", request=request)
        self.has_answered = True
        watching.answered(body, seconds)
        return httpx2.Response(response.status_code, json={}, request=request)


def connect(base_url: str, key: str | None, timeout: float, retries: int, connections: int) -> openai.AsyncOpenAI:
    """Return a client of the openai library over an `ObservedHttpClient`. Without a key, the placeholder "none" is
    sent.
    """
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=key or "none",
        timeout=_phases(timeout),
        max_retries=retries,
        http_client=ObservedHttpClient(timeout, connections),
    )


def _phases(timeout: float) -> httpx2.Timeout:
    return httpx2.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))


async def _content(response: httpx2.Response) -> bytes:
    """Return the body; empty when it is compressed, which was not asked for, or too large."""
    content = bytearray()
    async with contextlib.aclosing(response):
        if response.headers.get("content-encoding", "identity") != "identity":
            return b""
        async for part in response.aiter_raw():
            content += part
            if len(content) > LARGEST_ANSWER:
                return b""
    return bytes(content)


def _place(response: httpx2.Response) -> str:
    """Where a redirect leads, without user, password and query."""
    target = response.request.url.join(response.headers["location"])
    return str(target.copy_with(userinfo=b"", query=None, fragment=None))


def _chat_completion(content: bytes) -> dict[str, Any] | None:
    """Return the body of a chat completion; None for anything else."""
    try:
        body = json.loads(content)
        message = body["choices"][0]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return body if isinstance(message, dict) else None


def _error(content: bytes) -> bytes:
    """Return the body of an error in OpenAI's form: its message, and its code where it has one."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    error = body.get("error", body) if isinstance(body, dict) else None
    message, code = (error.get("message"), error.get("code")) if isinstance(error, dict) else (error, None)
    if not isinstance(message, str) or not message:
        message = content.decode("utf-8", "replace")
    return json.dumps({"error": {"message": message, "code": code if isinstance(code, str) else None}}).encode()
