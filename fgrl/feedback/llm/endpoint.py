"""Many requests at a time to one endpoint that speaks OpenAI's chat completions.

A fixed number of workers take requests from one queue, so that 20,000 requests do not open 20,000 coroutines. The openai
library pools connections and repeats attempts that were refused (429, 5xx, waiting as long as `retry-after` specifies, up
to two minutes) or broke. Each attempt may be charged, so the HTTP client below the library asks the desk before it, and
reports when it was refused or lost; an answer that is no chat completion counts as a broken connection.

One bad request never ends the others: it is listed as failed, with the reason. An error that every request would meet
ends the stage: a wrong key, an unknown model, a used-up quota, a pause of hours, a server that does not run (any more).

A redirect is not followed: the key and the prompts would go wherever an endpoint says. From an endpoint that has answered
before it is a passing fault like a 5xx.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiolimiter
import httpx2
import openai

from fgrl.feedback.llm import background, chat_answer
from fgrl.feedback.llm.desk import Call, Desk
from fgrl.feedback.llm.endpoint_errors import NEVER_SENT, EndpointErrors
from fgrl.feedback.llm.endpoint_settings import EndpointSettings
from fgrl.feedback.llm.structured_output import Mode, Setting, weaker
from fgrl.types import Request, Usage

CONNECT_TIMEOUT = 10.0
"""Longest wait for a connection, in seconds."""
IDLE = 4.0
"""Seconds that a connection without a request is kept open: shorter than servers keep it (uvicorn: 5), so that none is
closed under a request.
"""
BURSTS_PER_MINUTE = 10
"""Number of parts into which the tokens of a minute are divided: at most one part is spent at once."""
GRACE = 10.0
"""Seconds that calls in flight may take to end after a Ctrl-C."""


class Abandoned(openai.OpenAIError):
    """Error for a request that must not be attempted (any more). The openai library passes its own errors on unchanged."""


@dataclass
class Asked:
    """A request on its way, over all its attempts."""

    call: Call
    desk: Desk
    body: dict[str, Any] = field(default_factory=dict)
    """Body of the chat completion that answered it."""
    seconds: float = 0.0
    """Duration of the attempt that was answered."""


asked: contextvars.ContextVar[Asked] = contextvars.ContextVar("asked")
"""The request of the current task."""


@dataclass
class Endpoint:
    """An endpoint that one client asks. Rate limits live as long as this object."""

    settings: EndpointSettings
    errors: EndpointErrors
    key: str | None = field(repr=False)
    body: Callable[[Request, Mode], dict[str, Any]]
    """Function that returns the arguments of `chat.completions.create` for a request."""
    count_tokens: Callable[[Request], int]
    """Function that returns the tokens of a request that count against `tokens_per_minute`."""
    structured: Setting
    reached: bool = False
    """True if the endpoint has answered a request."""

    def __post_init__(self) -> None:
        self.mode: Mode = "schema" if self.structured == "auto" else self.structured
        self.slots = asyncio.Semaphore(self.settings.concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._library: openai.AsyncOpenAI | None = None
        self.limits = RateLimits(self.settings.requests_per_minute, self.settings.tokens_per_minute)

    def ask(self, calls: Sequence[Call], desk: Desk) -> None:
        """Ask, and keep the progress line up to date. Returns early after a Ctrl-C, when the calls in flight have ended
        or `GRACE` is over.
        """
        finished = threading.Event()
        work = background.start(self._work(calls, desk, finished))
        deadline = math.inf
        try:
            while not finished.wait(0.1) and time.monotonic() < deadline:
                desk.tick()
                if desk.listen():
                    deadline = min(deadline, time.monotonic() + GRACE)
        finally:
            work.cancel()
            finished.wait(GRACE)  # what was in flight is written down

    def close(self) -> None:
        """Close the connections."""
        library, self._library = self._library, None
        if library is not None:
            background.start(library.close()).result(GRACE)

    # -- in the background event loop --------------------------------------------------------------------------------------

    async def _work(self, calls: Sequence[Call], desk: Desk, finished: threading.Event) -> None:
        """Run workers over one queue. An error of one request affects only that request; an error that affects all
        requests halts the desk.
        """
        queue = deque(calls)

        async def worker(library: openai.AsyncOpenAI) -> None:
            while queue and not desk.closing:
                call = queue.popleft()
                try:
                    async with self.slots:  # which other threads take, too
                        await self._complete(call, desk, library)
                except Abandoned:
                    queue.append(call)  # for a worker whose own call is refused, which makes room for this one
                except Exception as error:  # `Unavailable`, a bug, or a full disk: not this request's alone
                    desk.halt(error)

        try:
            library = self._connected()
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self.settings.concurrency, len(calls))):
                    workers.create_task(worker(library))
        except Exception as error:
            desk.halt(error)
        finally:
            finished.set()

    def _connected(self) -> openai.AsyncOpenAI:
        """Return the connections, which stay open until `close`. A forked process opens its own."""
        loop = asyncio.get_running_loop()
        if self._library is None or self._loop is not loop:
            most = self.settings.concurrency
            # shorter than a whole attempt: what never reached the server is not charged
            timeout = httpx2.Timeout(None, connect=min(0.9 * self.settings.timeout, CONNECT_TIMEOUT))
            limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=IDLE)
            self._loop, self._library = loop, openai.AsyncOpenAI(
                base_url=self.errors.address, api_key=self.key or "none", timeout=timeout, max_retries=self.settings.max_retries,
                http_client=BookedHttpClient(self, timeout=timeout, limits=limits, follow_redirects=False),
            )  # fmt: skip
        return self._library

    async def _complete(self, call: Call, desk: Desk, library: openai.AsyncOpenAI) -> None:
        """Complete one request, over all its attempts, and again with a weaker mode if the endpoint refuses the schema."""
        own, mode = Asked(call, desk), self.mode
        asked.set(own)
        try:
            await library.chat.completions.with_raw_response.create(**self.body(call.request, mode))
        except openai.APIConnectionError as error:
            return desk.fail(call, self.errors.connection(error, reached=self.reached))
        except openai.APIStatusError as error:
            adapts = self.structured == "auto" and call.request.json_schema is not None
            instead = weaker(mode, error.status_code, error.response.text) if adapts else None
            if instead is None:
                return desk.fail(call, self.errors.status(error, reached=self.reached))
            if self.mode == mode:  # or another request has changed it already
                self.mode = instead
                desk.run.say(
                    f"{self.errors.model}: the endpoint refuses `response_format` {mode} ({self.errors.message(error)}): write "
                    f"`structured: {instead}`, which is used from now on"
                )
            return await self._complete(call, desk, library)
        usage = chat_answer.read_usage(own.body, desk.tariff)
        completion = chat_answer.read(own.body, usage, self.errors.model, self.errors.scrub)
        return desk.answer(call, completion, own.seconds)


class BookedHttpClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that asks before each attempt whether it may start, and records attempts without an answer."""

    def __init__(self, endpoint: Endpoint, **options: Any) -> None:
        super().__init__(**options)
        self.endpoint = endpoint

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        own = asked.get()
        await self.endpoint.limits.acquire(lambda: self.endpoint.count_tokens(own.call.request))
        if not own.desk.may_start():
            raise Abandoned("no more calls are made")
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.endpoint.settings.timeout):
                response = await super().send(request, **options)
            own.seconds = time.perf_counter() - started
            if response.is_success:
                own.body, self.endpoint.reached = chat_answer.body_of(response), True
                return response
        except NEVER_SENT:
            own.desk.refuse()
            raise
        except BaseException as error:
            own.desk.charge(own.call, "lost", Usage(), time.perf_counter() - started)
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout("", request=request) from error
            raise
        own.desk.refuse()
        response.encoding = "utf-8"  # whatever else it names, which may be no charset
        if response.is_redirect and self.endpoint.reached:
            response.headers["x-should-retry"] = "true"
        return response


class RateLimits:
    """The rate limits of an endpoint; None: no limit. Requests are spaced evenly. Belongs to one event loop."""

    def __init__(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._requests: aiolimiter.AsyncLimiter | None = None
        self._tokens: aiolimiter.AsyncLimiter | None = None
        if requests_per_minute is not None:
            self._requests = aiolimiter.AsyncLimiter(1, 60 / requests_per_minute)
        if tokens_per_minute is not None:
            burst = max(tokens_per_minute / BURSTS_PER_MINUTE, 1)
            self._tokens = aiolimiter.AsyncLimiter(burst, 60 * burst / tokens_per_minute)

    async def acquire(self, count_tokens: Callable[[], int]) -> None:
        """Wait until one more request may start. `count_tokens` is called only if tokens are limited."""
        if self._requests is not None:
            await self._requests.acquire()
        if self._tokens is not None:
            remaining = float(count_tokens())
            while remaining > 0:
                await self._tokens.acquire(min(remaining, self._tokens.max_rate))
                remaining -= self._tokens.max_rate
