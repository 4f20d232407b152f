"""A chat completion from an endpoint, turned into a `Completion`. No value in it is trusted to have the right type."""

from __future__ import annotations

import math
from typing import Any

import httpx2
from pydantic import ValidationError

from fgrl.base.sanitizing import Scrubber
from fgrl.base.visible import without_lone_surrogates
from fgrl.feedback.llm.prices import ListPrice, Price
from fgrl.types import Completion, Usage

MOST_TOKENS = 10**9
"""Upper bound on the tokens of one call; a larger number is read as missing."""


def body_of(response: httpx2.Response) -> dict[str, Any]:
    """Return the body of a chat completion. Any other body raises the error of a broken connection."""
    try:
        body = response.json()
        if isinstance(body["choices"][0]["message"], dict):
            return body
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise httpx2.RemoteProtocolError("what the endpoint sent is no chat completion", request=response.request)


def read(body: dict[str, Any], usage: Usage, model: str, scrub: Scrubber) -> Completion:
    """Return the completion in a body. An answer without text is an error, unless its `finish_reason` explains it; an
    unexpected form is an error too.
    """
    choice = body["choices"][0]
    message, finish = choice["message"], choice.get("finish_reason")
    text = _text(message.get("content"))
    if not text and message.get("refusal"):
        text, finish = _text(message["refusal"]), "refusal"
    if not text.strip() and finish not in ("length", "content_filter"):
        return Completion(error=f"{model}: the answer is empty", usage=usage)
    finish = without_lone_surrogates(finish) if isinstance(finish, str) else finish
    try:
        return Completion(text=scrub.own(text), finish=finish, usage=usage, logprobs=_first_token(choice))
    except ValidationError as error:
        reason = f"{model}: the answer has not the form of a chat completion ({error!r})"
        return Completion(error=scrub.line(reason), usage=usage)


def _text(content: object) -> str:
    """Return the text of a message, which may come in parts; parts that are not text (an image, thoughts) are left out."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return without_lone_surrogates("".join(text for text in texts if isinstance(text, str)))


def read_usage(body: dict[str, Any], tariff: Price | ListPrice | None) -> Usage:
    """Return the tokens that the endpoint reports, with their price. If a count is missing, the cost is unknown, unless
    the price is 0.
    """
    reported = body.get("usage")
    reported = reported if isinstance(reported, dict) else {}
    prompt, completion = _count(reported, "prompt_tokens"), _count(reported, "completion_tokens")
    if prompt is None or completion is None:
        free = tariff is not None and tariff.prompt == tariff.completion == 0
        return Usage(usd=0.0 if free else None)
    details = reported.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached = min(_count(details, "cached_tokens") or 0, prompt)
    written = min(_count(details, "cache_write_tokens") or 0, prompt - cached)
    usd = None if tariff is None else tariff.of(prompt, completion, cached, written)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, usd=usd)


def _count(counts: dict[str, Any], name: str) -> int | None:
    value = counts.get(name)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _first_token(choice: dict[str, Any]) -> dict[str, float] | None:
    """Return the log-probabilities (nats) of the most probable first tokens, if the endpoint gives them in OpenAI's
    form.
    """
    try:
        alternatives = choice["logprobs"]["content"][0]["top_logprobs"]
        known = [(without_lone_surrogates(item["token"]), float(item["logprob"])) for item in alternatives]
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
        return None
    logprobs: dict[str, float] = {}
    for token, logprob in known:
        if -math.inf < logprob <= 0:
            logprobs.setdefault(token, logprob)
    return logprobs or None
