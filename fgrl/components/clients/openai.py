"""Any endpoint that speaks OpenAI's chat completions: OpenAI, vLLM, `transformers serve`, gateways.

A fixed number of workers take requests from one queue, so that 20,000 requests do not open 20,000 coroutines. Retries of
refused and broken attempts are the openai library's own (it waits as long as `retry-after` says, up to two minutes). One bad
request never ends the others: it is listed as failed, with the reason. What every request would fail of does: a wrong key, a
model that is not there, a quota that is used up, a pause of hours, a server that does not run (any more).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, field_validator

from fgrl import lazy
from fgrl.errors import Unavailable
from fgrl.kinds import Run
from fgrl.llm import background, tokens
from fgrl.llm.cached import Cached
from fgrl.llm.desk import Call, Desk
from fgrl.llm.secrets import Scrubber
from fgrl.registry import Unkeyed, register
from fgrl.types import Completion, Request, Usage

aiolimiter = lazy.load("aiolimiter")
openai = lazy.load("openai")
wire = lazy.load("fgrl.llm.wire")

OPENAI = "https://api.openai.com/v1"
GRACE = 10.0
"""Seconds that calls in flight have to end after a Ctrl-C."""
LONGEST_PAUSE = 120.0
"""Seconds that the openai library waits at most when an endpoint asks for a pause; after a longer one it does not try again."""
SHOWN = 400
"""Characters of an endpoint's message that are repeated."""
Mode = Literal["schema", "json_object", "none"]


@register("openai")
class OpenAI(Cached):
    """Asks an OpenAI-compatible endpoint, many requests at a time. Answers are cached; the key comes from the environment."""

    model: str = Field(min_length=1)
    """Name of the model, as the endpoint knows it."""
    base_url: str | None = None
    """Where the endpoint is, e.g. http://127.0.0.1:8000/v1. null: OpenAI."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; a key itself is never in a recipe. null: the endpoint needs none."""
    temperature: float | None = Field(0.0, ge=0)
    """Sampling temperature. null: the endpoint's default (some models accept no other)."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Sample from the most probable tokens that together have this probability. null: the endpoint's default."""
    max_tokens: int = Field(1024, ge=1)
    """Longest answer, in tokens. It also bounds what a call can cost."""
    max_tokens_name: Annotated[Literal["max_tokens", "max_completion_tokens"], Unkeyed] = "max_tokens"
    """What the endpoint calls that limit: OpenAI's reasoning models know only `max_completion_tokens`."""
    seed: int | None = None
    """Sent with each request; the index of a sample is added to it. null: none."""
    stop: list[str] = []
    """Texts that end an answer."""
    structured: Literal["auto", "schema", "json_object", "none"] = "auto"
    """How an answer is held to a request's JSON schema. schema: the endpoint enforces it. json_object: it enforces JSON. none:
    nothing is sent. auto: schema, and if the endpoint refuses that, the next of these, said once."""
    logprobs: bool = True
    """Ask for log-probabilities where a request wants them. false: for endpoints that refuse to give them."""
    concurrency: Annotated[int, Unkeyed] = Field(32, ge=1, le=1024)
    """Calls in flight at a time."""
    requests_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Rate limit, retries included; calls are spaced evenly. null: none."""
    tokens_per_minute: Annotated[float | None, Unkeyed] = Field(None, gt=0)
    """Rate limit; each attempt counts as its prompt's estimated tokens plus `max_tokens`. null: none."""
    timeout: Annotated[float, Unkeyed] = Field(300.0, gt=0)
    """Seconds that one attempt may take."""
    max_retries: Annotated[int, Unkeyed] = Field(5, ge=0)
    """How often an attempt that was refused (429, 5xx) or broke is repeated before the request is listed as failed."""
    tokenizer: Annotated[str | None, Unkeyed] = None
    """Whose tokenizer counts prompts in plans: a hub id, a folder, or a packaged model (`smollm2-135m-instruct`). null: an
    estimate from the words."""

    _scrub: Scrubber = PrivateAttr(default_factory=lambda: Scrubber(None))
    _key: str | None = PrivateAttr(None)
    _connection: Any = PrivateAttr(None)
    _limits: list[Any] = PrivateAttr(default_factory=list)
    _mode: Mode = PrivateAttr("schema")
    _reached: bool = PrivateAttr(False)
    """The endpoint has answered a request of this process."""

    @field_validator("api_key_env")
    @classmethod
    def _a_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_]\w*", value):
            raise ValueError("wants the name of an environment variable; if this is a key, take it out of the recipe")
        return value

    @field_validator("base_url")
    @classmethod
    def _plain_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("wants an address like http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "wants an address without user, password or query: put the key into an environment variable"
            )
        return value.rstrip("/")

    # -- who is asked, and what ----------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        return {"client": "openai", "model": self.model, "endpoint": self.base_url or OPENAI}

    def parameters(self, request: Request) -> dict[str, Any]:
        """What is sent beside model and messages, except for the schema; None is not sent."""
        return {
            "temperature": self.temperature if request.temperature is None else request.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens if request.max_tokens is None else request.max_tokens,
            "seed": None if self.seed is None else self.seed + request.sample,
            "stop": self.stop,
            "logprobs": request.logprobs if self.logprobs else 0,
            "structured": self.structured if request.json_schema is not None else None,
        }

    def body(self, request: Request, mode: Mode) -> dict[str, Any]:
        """The arguments of `chat.completions.create`."""
        sent = self.parameters(request)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            self.max_tokens_name: sent["max_tokens"],
        }
        body |= {name: sent[name] for name in ("temperature", "top_p", "seed") if sent[name] is not None}
        if sent["stop"]:
            body["stop"] = sent["stop"]
        if sent["logprobs"]:
            body |= {"logprobs": True, "top_logprobs": sent["logprobs"]}
        if request.json_schema is not None and mode != "none":
            body["response_format"] = (
                {"type": "json_object"}
                if mode == "json_object"
                else {"type": "json_schema", "json_schema": _named(request.json_schema)}
            )
        return body

    def count_tokens(self, request: Request) -> int:
        return tokens.estimate(request) if self.tokenizer is None else tokens.count(request, self.tokenizer)

    # -- asking --------------------------------------------------------------------------------------------------------

    def setup(self, run: Run) -> None:
        if self.api_key_env is not None:
            self._key = os.environ.get(self.api_key_env, "").strip()
            if not self._key:
                raise Unavailable(
                    f"the environment variable {self.api_key_env} is not set: put the key for {self.base_url or OPENAI} "
                    "into it, name another with `api_key_env`, or write `api_key_env: null` for an endpoint that needs none"
                )
            if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
                raise Unavailable(f"the environment variable {self.api_key_env} holds spaces or signs that no key has")
        self._scrub = Scrubber(self._key)
        self._mode = "schema" if self.structured == "auto" else self.structured
        super().setup(run)

    def put(self, calls: Sequence[Call], desk: Desk) -> None:
        ended = threading.Event()
        work = background.start(self._work(calls, desk, ended))
        leave_at: float | None = None
        try:
            while True:
                try:
                    work.result(timeout=0.1)
                    return
                except concurrent.futures.TimeoutError:
                    desk.tick()
                if leave_at is None and desk.listen():
                    leave_at = time.monotonic() + GRACE
                if leave_at is not None and time.monotonic() > leave_at:
                    _cancel(work, ended)
                    return
        except BaseException:
            _cancel(work, ended)
            raise

    async def _work(self, calls: Sequence[Call], desk: Desk, ended: threading.Event) -> None:
        """Workers over one queue. Errors of one request stay with it; what concerns all halts the desk."""
        shelf = _Shelf(desk)
        queue = deque(calls)

        async def worker() -> None:
            while queue and not desk.closing:
                try:
                    await self._one(queue.popleft(), desk, shelf)
                except Exception as error:  # a bug, or a full disk: not this request's alone
                    desk.halt(error)

        try:
            if self._connection is None:
                self._connect()
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.concurrency, len(calls))):
                    group.create_task(worker())
        finally:
            ended.set()

    def _connect(self) -> None:
        self._connection = wire.connect(
            base_url=self.base_url or OPENAI,
            key=self._key,
            timeout=self.timeout,
            retries=self.max_retries,
            connections=self.concurrency,
        )
        if self.requests_per_minute is not None:
            self._limits.append((aiolimiter.AsyncLimiter(1, 60 / self.requests_per_minute), None))
        if self.tokens_per_minute is not None:
            portion = max(self.tokens_per_minute / 10, 1)  # of 6 seconds: no burst is longer
            self._limits.append((aiolimiter.AsyncLimiter(portion, 60 * portion / self.tokens_per_minute), portion))

    async def _one(self, call: Call, desk: Desk, shelf: _Shelf) -> None:
        """One request, over all its attempts."""
        course = _Course(self, call, desk, shelf)
        while True:
            mode = self._mode
            wire.current.set(course)
            try:
                await self._connection.chat.completions.with_raw_response.create(**self.body(call.request, mode))
            except wire.Left:
                return
            except openai.APIStatusError as error:
                if self._falls_back(call, mode, error):
                    continue
                self._refused(call, desk, course, error)
            except openai.APIConnectionError as error:
                self._broken(call, desk, course, error)
            else:
                await self._arrived(call, desk, shelf, course)
            return

    async def _arrived(self, call: Call, desk: Desk, shelf: _Shelf, course: _Course) -> None:
        self._reached = True
        completion = course.completion
        if completion.error is not None:
            desk.fail(call, completion.error, completion.usage)
        else:
            desk.keep(call, await shelf.put(call, completion))

    def _read(self, body: dict[str, Any], usage: Usage) -> Completion:
        """A chat completion as ours. An answer without a word is a failure, unless `finish` says why it has none."""
        choice = body["choices"][0]
        message = choice["message"]
        finish = choice.get("finish_reason")
        text = message.get("content")
        if not text and message.get("refusal"):
            text, finish = message["refusal"], "refusal"
        if (not isinstance(text, str) or not text.strip()) and finish not in ("length", "content_filter"):
            return Completion(error=f"{self.model}: the answer is empty", finish=finish, usage=usage)
        return Completion(
            text=self._scrub.own(_sound(text) if isinstance(text, str) else ""),
            finish=finish,
            usage=usage,
            logprobs=_first_token(choice),
        )

    def _falls_back(self, call: Call, mode: Mode, error: Any) -> bool:
        """Did the endpoint refuse the way to hold answers to a schema, and is there a weaker one?"""
        if (
            self.structured != "auto"
            or call.request.json_schema is None
            or error.status_code not in (400, 415, 422, 501)
        ):
            return False
        if mode == "none" or not any(
            word in str(error.message) for word in ("response_format", "json_schema", "schema")
        ):
            return False
        if mode == self._mode:
            self._mode = "json_object" if mode == "schema" else "none"
            now = "asks for JSON only" if self._mode == "json_object" else "sends no schema"
            self._opened().run.say(
                f"{self.model}: the endpoint refuses `response_format` {mode} ({self._said(error)}): fgrl {now} from here "
                f"on; write `structured: {self._mode}` to have it so from the start"
            )
        return True

    def _refused(self, call: Call, desk: Desk, course: _Course, error: Any) -> None:
        """An HTTP status that is no success, after all retries."""
        status, said, where = error.status_code, self._said(error), self.base_url or OPENAI
        if status == 401 or (status == 403 and not self._reached):
            told = "takes no request without a key" if self._key is None else f"refuses the key in {self.api_key_env}"
            desk.halt(
                Unavailable(
                    f"{where} {told} (HTTP {status}: {said}): set `api_key_env` to the variable with the right key"
                )
            )
        elif status == 404:
            desk.halt(
                Unavailable(f"{where} has no model {self.model} (HTTP 404: {said}): check `model` and `base_url`")
            )
        elif status == 402 or (status == 429 and error.code == "insufficient_quota"):
            desk.halt(
                Unavailable(f"{where}: the account's quota is used up (HTTP {status}: {said}); answers so far are kept")
            )
        elif status == 429 and (pause := _pause(error.response.headers)) > LONGEST_PAUSE:
            desk.halt(
                Unavailable(
                    f"{where} wants a pause of {pause:,.0f} s (HTTP 429: {said}): run the same command after it; answers so "
                    "far are kept, and only what is missing is asked"
                )
            )
        else:
            desk.fail(call, f"HTTP {status}: {said}", course.cost())

    def _broken(self, call: Call, desk: Desk, course: _Course, error: Any) -> None:
        """No answer, after all retries."""
        cause = error.__cause__
        said = self._scrub(f"{type(cause).__name__}: {cause}" if cause is not None else str(error))[:SHOWN]
        where = self.base_url or OPENAI
        if isinstance(cause, wire.NEVER_SENT):
            asked = (
                "it did before; answers so far are kept: start it and run the same command, and only what is missing is asked"
                if self._reached
                else "is the server running, is `base_url` right?"
            )
            desk.halt(Unavailable(f"nobody answers at {where} ({said}): {asked}"))
        else:
            desk.fail(call, f"no answer: {said}", course.cost())

    def _said(self, error: Any) -> str:
        """What an endpoint says of a refusal, without secrets, on one line."""
        body = error.body
        inner = body.get("message") if isinstance(body, dict) else None
        said = inner if isinstance(inner, str) and inner else str(body or error.message)
        return self._scrub(" ".join(said.split()))[:SHOWN]


class _Course:
    """One request on its way; see `wire.Course`."""

    def __init__(self, client: OpenAI, call: Call, desk: Desk, shelf: _Shelf) -> None:
        self.client, self.call, self.desk, self.shelf = client, call, desk, shelf
        self.losses = 0
        self.completion = Completion()

    async def admit(self) -> None:
        for limit, portion in self.client._limits:
            await self._pass(limit, portion)
        while (verdict := self.desk.may_start(self.call)) == "wait":
            await self.shelf.change()
        if verdict == "stop":
            raise wire.Left("not to be asked any more")

    async def _pass(self, limit: Any, portion: float | None) -> None:
        if portion is None:
            await limit.acquire()
            return
        request = self.call.request
        left = float(self.client.count_tokens(request) + self.client.parameters(request)["max_tokens"])
        while left > 0:
            await limit.acquire(min(left, portion))
            left -= portion

    def refused(self) -> None:
        self.desk.refuse(self.call)
        self.shelf.changed()

    def lost(self, seconds: float) -> None:
        self.losses += 1
        self.desk.charge(self.call, "lost", Usage(), seconds)
        self.shelf.changed()

    def cost(self) -> Usage:
        """Of a request that got no answer: nothing, unless an attempt broke."""
        return Usage(usd=None if self.losses else 0.0)

    def arrived(self, body: dict[str, Any], seconds: float) -> None:
        usage = _usage(body, self.desk)
        try:
            self.completion = self.client._read(body, usage)
        except (TypeError, ValueError, KeyError, AttributeError) as error:  # paid for, whatever it is
            reason = f"{self.client.model}: the answer has not the form of a chat completion ({error!r})"
            self.completion = Completion(error=self.client._scrub(" ".join(reason.split()))[:SHOWN], usage=usage)
        self.desk.charge(self.call, "answered" if self.completion.error is None else "empty", usage, seconds)
        self.shelf.changed()


class _Shelf:
    """Puts answers into the cache from one thread, as many at a time as have come in while it was busy. An answer is
    handed out when it is on the disk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._waiting: list[tuple[Call, Completion, asyncio.Future[Completion]]] = []
        self._busy: asyncio.Task[None] | None = None
        self._change = asyncio.Event()

    async def put(self, call: Call, completion: Completion) -> Completion:
        """Store an answer; returns what the cache now has for the call."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, completion, future))
        if self._busy is None:
            self._busy = asyncio.create_task(self._store())
        return await future

    async def _store(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting, []
            rows = [(call.key, call.question, completion) for call, completion, _ in some]
            try:
                kept = await asyncio.get_running_loop().run_in_executor(None, self.desk.store.put, rows)
            except Exception as error:
                for _, _, future in some:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, _, future), completion in zip(some, kept, strict=True):
                if not future.done():
                    future.set_result(completion)
        self._busy = None

    def changed(self) -> None:
        """A call has ended: wake who waits for room."""
        self._change.set()
        self._change = asyncio.Event()

    async def change(self) -> None:
        await self._change.wait()


def _pause(headers: Mapping[str, str]) -> float:
    """Seconds that an endpoint asks to wait; 0 where it does not say a number."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
    return 0.0


def _usage(body: dict[str, Any], desk: Desk) -> Usage:
    """What the endpoint says it counted; unless it says both counts the price is unknown."""
    told = body.get("usage")
    told = told if isinstance(told, dict) else {}
    prompt, completion = _count(told, "prompt_tokens"), _count(told, "completion_tokens")
    if prompt is None or completion is None:
        free = desk.tariff is not None and desk.tariff.prompt == desk.tariff.completion == 0
        return Usage(usd=0.0 if free else None)
    details = told.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    return desk.usage(prompt, completion, cached or 0, written or 0)


def _count(told: dict[str, Any], name: str) -> int | None:
    value = told.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sound(text: str) -> str:
    """Half a surrogate pair, which JSON can write and no file can hold, becomes the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema as `response_format` wants it."""
    title = str(schema.get("title", "answer"))
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in title)[:64]
    return {"name": name or "answer", "schema": schema, "strict": _strict(schema)}


def _strict(schema: Any) -> bool:
    """May the schema be enforced to the letter? OpenAI wants every property required and no others allowed."""
    if isinstance(schema, list):
        return all(_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", [])) != set(properties):
            return False
    return all(_strict(value) for value in schema.values())


def _first_token(choice: dict[str, Any]) -> dict[str, float] | None:
    """Log-probabilities (nats) of the most probable first tokens, where the endpoint gives them; -inf is not listed."""
    content = (choice.get("logprobs") or {}).get("content") or []
    top = content[0].get("top_logprobs") if content else None
    if not top:
        return None
    found: dict[str, float] = {}
    for item in top:
        if math.isfinite(logprob := float(item["logprob"])):
            found.setdefault(_sound(item["token"]), logprob)
    return found or None


def _cancel(work: concurrent.futures.Future[None], ended: threading.Event) -> None:
    """Cancel, and wait until what was in flight is written down."""
    work.cancel()
    ended.wait(GRACE)
