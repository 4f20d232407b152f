"""Client for every endpoint with OpenAI's chat completions: OpenAI, vLLM, `transformers serve`, gateways."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, field_validator

from fgrl.base import lazy
from fgrl.base.errors import Requires, Unavailable
from fgrl.base.sanitizing import Scrubber
from fgrl.feedback.llm import tokens
from fgrl.feedback.llm.cached import OPENING, Cached
from fgrl.feedback.llm.desk import Call, Desk
from fgrl.feedback.llm.endpoint_settings import EndpointSettings
from fgrl.feedback.llm.structured_output import Mode, Setting, response_format
from fgrl.kinds import Run
from fgrl.registry import FolderOrName, Unkeyed, register
from fgrl.types import Request

if TYPE_CHECKING:
    from fgrl.feedback.llm import endpoint as endpoints
    from fgrl.feedback.llm import endpoint_errors
else:
    endpoints = lazy.load("fgrl.feedback.llm.endpoint")
    endpoint_errors = lazy.load("fgrl.feedback.llm.endpoint_errors")

OPENAI = "https://api.openai.com/v1"
MAX_TOKENS = 1024
"""Maximum number of tokens of an answer if no limit is set."""
LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")
"""Host names of this machine."""


@register("openai")
class OpenAI(EndpointSettings, Cached):
    """Asks an OpenAI-compatible endpoint, with many concurrent requests. Answers are cached; the key comes from the
    environment.
    """

    concurrent = True
    requires = Requires("openai", "the client openai needs the package openai", extra="endpoints")

    model: str = Field(min_length=1)
    """Name of the model at the endpoint."""
    base_url: str | None = None
    """Address of the endpoint, e.g. http://127.0.0.1:8000/v1. null: OpenAI."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Name of the environment variable that contains the key; a recipe never contains a key itself. null: the endpoint
    needs no key.
    """
    temperature: float | None = Field(0.0, ge=0, le=100)
    """Sampling temperature. null: the endpoint's default (some models accept no other)."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Nucleus sampling: draw from the most probable tokens that together reach this probability. null: the endpoint's
    default.
    """
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens of an answer, which also bounds the cost of a call. If the question has a limit too, the
    smaller one counts. null: the limit of the question, or 1024.
    """
    max_tokens_name: Annotated[Literal["max_tokens", "max_completion_tokens"], Unkeyed] = "max_tokens"
    """Name of that limit at the endpoint: OpenAI's reasoning models accept only `max_completion_tokens`."""
    seed: int | None = None
    """Seed that is sent with each request, plus the index of the sample. null: no seed is sent."""
    stop: list[str] = []
    """Texts that end an answer when they occur."""
    structured: Setting = "auto"
    """Method of making an answer follow the JSON schema of a request. schema: the endpoint enforces the schema.
    json_object: it enforces valid JSON. none: nothing is sent. auto: schema, and if the endpoint refuses it, the next
    of these methods, reported once.
    """
    logprobs: bool = True
    """Ask for log-probabilities if a request needs them. false: for endpoints that refuse to provide them."""
    tokenizer: Annotated[str | None, Unkeyed, FolderOrName()] = None
    """Tokenizer that counts prompts in plans: a hub id, a folder, or a packaged model (`smollm2-135m-instruct`). null:
    an estimate from the number of words.
    """

    _endpoint: Any = PrivateAttr(None)

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
            guess = (
                f'; did you mean "http://{value}"?'
                if "://" not in value and urlsplit(f"http://{value}").hostname
                else ""
            )
            raise ValueError(f"wants an address like http://127.0.0.1:8000/v1{guess}")
        if parts.path.rstrip("/").endswith("/chat/completions"):
            before = value.partition("/chat/completions")[0]
            raise ValueError(f"{value} is where single requests go (chat/completions); write {before}")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "wants an address without user, password or query: put the key into an environment variable"
            )
        return value.rstrip("/")

    def remarks(self) -> list[str]:
        parts = urlsplit(self.base_url or OPENAI)
        if parts.scheme == "https" or self.api_key_env is None or LOOPBACK.fullmatch(parts.hostname or ""):
            return []
        return [
            f"the key in {self.api_key_env} and the prompts go to {parts.hostname} unencrypted: write https if it can"
        ]

    # -- which model is asked, and what is sent ------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        return {"client": "openai", "model": self.model, "endpoint": self.base_url or OPENAI}

    def parameters(self, request: Request) -> dict[str, Any]:
        """Return all parameters that are sent besides model, messages and schema. Parameters that are None are not
        sent.
        """
        return {
            "temperature": self.temperature if request.temperature is None else request.temperature,
            "top_p": self.top_p,
            "max_tokens": min(filter(None, (request.max_tokens, self.max_tokens)), default=MAX_TOKENS),
            "seed": None if self.seed is None else self.seed + request.sample,
            "stop": self.stop,
            "logprobs": request.logprobs if self.logprobs else 0,
            "structured": self.structured if request.json_schema is not None else None,
        }

    def body(self, request: Request, mode: Mode) -> dict[str, Any]:
        """Return the arguments of `chat.completions.create`."""
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
            body["response_format"] = response_format(request.json_schema, mode)
        return body

    def count_tokens(self, request: Request) -> int:
        return tokens.estimate(request) if self.tokenizer is None else tokens.count(request, self.tokenizer)

    # -- asking --------------------------------------------------------------------------------------------------------

    def check_machine(self) -> None:
        super().check_machine()
        self._key()

    def setup(self, run: Run) -> None:
        connections: ExitStack[bool | None] = run.shared("connections", ExitStack)
        connections.callback(self._disconnect)  # behind the ledger, which waits for calls in flight
        super().setup(run)

    def endpoint(self, address: str) -> endpoints.Endpoint:
        """Return the endpoint at an address. Raise `Unavailable` if the key is missing."""
        key = self._key()
        return endpoints.Endpoint(
            settings=self,
            errors=endpoint_errors.EndpointErrors(address, self.model, self.api_key_env, Scrubber(key)),
            key=key,
            body=self.body,
            count_tokens=lambda request: self.count_tokens(request) + self.parameters(request)["max_tokens"],
            structured=self.structured,
        )

    def put(self, calls: Sequence[Call], desk: Desk) -> None:
        with OPENING:
            self._endpoint = self._endpoint or self.endpoint(self.base_url or OPENAI)
        self._endpoint.ask(calls, desk)

    def _disconnect(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    def _key(self) -> str | None:
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise Unavailable(
                f"the environment variable {self.api_key_env} is not set: put the key for {self.base_url or OPENAI} "
                "into it, name another with `api_key_env`, or write `api_key_env: null` for an endpoint that needs none"
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise Unavailable(
                f"the environment variable {self.api_key_env} contains spaces or characters that no key has"
            )
        return key
