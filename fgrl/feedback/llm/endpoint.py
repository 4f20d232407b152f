"""Many requests at a time to one endpoint that speaks OpenAI's chat completions.

A fixed number of workers take requests from one queue, so that 20,000 requests do not open 20,000 coroutines. Retries
of refused and broken attempts are the openai library's own (it waits as long as `retry-after` specifies, up to two
minutes). One bad request never ends the others: it is listed as failed, with the reason. An error that every request
would meet ends the stage: a wrong key, an unknown model, a used-up quota, a pause of hours, a server that does not run
(any more).
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from fgrl.base import lazy
from fgrl.feedback.llm import background, chat_answer
from fgrl.feedback.llm.desk import CacheWriter, Call, Desk
from fgrl.feedback.llm.endpoint_errors import EndpointErrors
from fgrl.feedback.llm.structured_output import Mode, StructuredOutput
from fgrl.registry import Settings, Unkeyed
from fgrl.types import Completion, Request, Usage

if TYPE_CHECKING:
    import asyncio

    import aiolimiter
    import openai

    from fgrl.feedback.llm import attempts
else:
    aiolimiter = lazy.load("aiolimiter")
    asyncio = lazy.load("asyncio")
    attempts = lazy.load("fgrl.feedback.llm.attempts")
    openai = lazy.load("openai")

BURSTS_PER_MINUTE = 10
"""No more than the tokens of a tenth of a minute are spent at once."""
GRACE = 10.0
"""Seconds that calls in flight have to end after a Ctrl-C."""


class EndpointSettings(Settings):
    """How many calls an endpoint is sent, how fast, and how patiently. None of it changes an answer."""

    concurrency: Annotated[int, Unkeyed] = Field(32, ge=1, le=1024)
    """Calls in flight at the same time."""
    requests_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Rate limit, retries included; calls are spaced evenly. null: none."""
    tokens_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Rate limit; each attempt counts as its prompt's estimated tokens plus `max_tokens`. null: none."""
    timeout: Annotated[float, Unkeyed] = Field(300.0, gt=0, le=86_400)
    """Seconds that one attempt may take."""
    max_retries: Annotated[int, Unkeyed] = Field(5, ge=0, le=1_000)
    """How often an attempt that was refused (429, 5xx) or broke is retried before the request is listed as failed."""


@dataclass
class Endpoint:
    """An endpoint, as one client asks it. Rate limits live as long as this object."""

    settings: EndpointSettings
    errors: EndpointErrors
    key: str | None = field(repr=False)
    body: Callable[[Request, Mode], dict[str, Any]]
    """The arguments of `chat.completions.create` for a request."""
    count_tokens: Callable[[Request], int]
    """What a request counts against `tokens_per_minute`."""
    structured: StructuredOutput
    reached: bool = False
    """The endpoint has answered a request."""
    _library: openai.AsyncOpenAI | None = None
    _limits: RateLimits | None = None

    # -- in the thread that asks -------------------------------------------------------------------------------------------

    def ask(self, calls: Sequence[Call], desk: Desk) -> None:
        """Ask, and keep the progress line up to date. Returns early after a Ctrl-C, when the calls in flight have ended
        or `GRACE` is over.
        """
        finished = threading.Event()
        work = background.start(self._work(calls, desk, finished))
        deadline: float | None = None
        try:
            while True:
                try:
                    work.result(timeout=0.1)
                    return
                except concurrent.futures.TimeoutError:
                    desk.tick()
                if deadline is None and desk.listen():
                    deadline = time.monotonic() + GRACE
                if deadline is not None and time.monotonic() > deadline:
                    _cancel(work, finished)
                    return
        except BaseException:
            _cancel(work, finished)
            raise

    # -- in the background event loop --------------------------------------------------------------------------------------

    async def _work(self, calls: Sequence[Call], desk: Desk, finished: threading.Event) -> None:
        """Workers over one queue. An error of one request stays with it; one that concerns all halts the desk."""
        queue = deque(calls)
        writer = CacheWriter(desk.books.store)
        call_ended = asyncio.Event()

        async def worker() -> None:
            while queue and not desk.closing:
                try:
                    await self._complete(queue.popleft(), desk, writer, call_ended)
                except Exception as error:  # `Unavailable`, a bug, or a full disk: not this request's alone
                    desk.halt(error)

        try:
            if self._library is None:
                self._connect()
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self.settings.concurrency, len(calls))):
                    workers.create_task(worker())
        finally:
            finished.set()

    def _connect(self) -> None:
        settings = self.settings
        self._limits = RateLimits(settings.requests_per_minute, settings.tokens_per_minute)
        self._library = attempts.connect(
            self.errors.address, self.key, settings.timeout, settings.max_retries, settings.concurrency
        )

    async def _complete(self, call: Call, desk: Desk, writer: CacheWriter, call_ended: asyncio.Event) -> None:
        """One request, over all its attempts, and again with a weaker mode where the endpoint refuses the schema."""
        assert self._library is not None
        progress = _RequestProgress(self, call, desk, call_ended)
        while True:
            mode = self.structured.mode
            attempts.observer.set(progress)
            try:
                await self._library.chat.completions.with_raw_response.create(**self.body(call.request, mode))
            except attempts.Abandoned:
                return
            except openai.APIStatusError as error:
                if call.request.json_schema is not None and self.structured.refuses(
                    mode, error.status_code, str(error.message)
                ):
                    self._weaken(mode, error, desk)
                    continue
                desk.fail(call, self.errors.status(error, reached=self.reached), progress.cost())
            except openai.APIConnectionError as error:
                desk.fail(call, self.errors.connection(error, reached=self.reached), progress.cost())
            else:
                self.reached = True
                completion = progress.completion
                if completion.error is not None:
                    desk.fail(call, completion.error, completion.usage)
                else:
                    desk.keep(call, await writer.put(call, completion))
            return

    def _weaken(self, refused: Mode, error: openai.APIStatusError, desk: Desk) -> None:
        """Use a weaker mode from now on, and report that once."""
        if not self.structured.weaken(refused):
            return
        mode = self.structured.mode
        now = "asks for JSON only" if mode == "json_object" else "sends no schema"
        desk.books.run.say(
            f"{self.errors.model}: the endpoint refuses `response_format` {refused} ({self.errors.message(error)}): fgrl {now} "
            f"from now on; write `structured: {mode}` to have it so from the start"
        )

    async def wait_for_rate_limits(self, request: Request) -> None:
        assert self._limits is not None
        await self._limits.acquire(lambda: self.count_tokens(request))


class _RequestProgress:
    """One request on its way; an `attempts.AttemptObserver` that keeps the books."""

    def __init__(self, endpoint: Endpoint, call: Call, desk: Desk, call_ended: asyncio.Event) -> None:
        self.endpoint, self.call, self.desk, self.call_ended = endpoint, call, desk, call_ended
        self.lost_attempts = 0
        self.completion = Completion()
        """Of the attempt that was answered."""

    async def admit(self) -> None:
        await self.endpoint.wait_for_rate_limits(self.call.request)
        while (permission := self.desk.may_start(self.call)) == "wait":
            self.call_ended.clear()
            await self.call_ended.wait()
        if permission == "stop":
            raise attempts.Abandoned("no more calls are made")

    def refused(self) -> None:
        self.desk.refuse(self.call)
        self.call_ended.set()

    def lost(self, seconds: float) -> None:
        self.lost_attempts += 1
        self.desk.charge(self.call, "lost", Usage(), seconds)
        self.call_ended.set()

    def answered(self, body: dict[str, Any], seconds: float) -> None:
        usage = chat_answer.read_usage(body, self.desk.books.tariff)
        self.completion = chat_answer.read(body, usage, self.endpoint.errors.model, self.endpoint.errors.scrub)
        self.desk.charge(self.call, "answered" if self.completion.error is None else "empty", usage, seconds)
        self.call_ended.set()

    def cost(self) -> Usage:
        """Of a request without an answer: nothing, unless an attempt was lost."""
        return Usage(usd=None if self.lost_attempts else 0.0)


def _cancel(work: concurrent.futures.Future[None], finished: threading.Event) -> None:
    """Cancel, and wait until the calls that were in flight are written down."""
    work.cancel()
    finished.wait(GRACE)


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
