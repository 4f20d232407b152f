"""Requests in the format of vLLM's `/v1/completions`, and their answers: each is either a response or an error.

The code that `hf` uses (`fgrl.rollouts.serving.early`) decides how a response ends. The server is told as much of the
conditions as it supports, so that it stops soon. Tokens that it draws after the end are cut off here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.kinds import DrawRequest
from fgrl.types import DrawnResponse

LEAST_TEMPERATURE = 0.01
"""Temperature to which vLLM raises lower temperatures above 0."""
ROUNDING = 1e-3
"""Tolerance by which a log-probability may be above 0, in nats."""


class BadAnswer(Exception):
    """An answer is not a response to the request."""


@dataclass(frozen=True)
class Reader:
    """Requirements on answers to requests to one model."""

    ends: Collection[int]
    """Tokens that end a response."""
    vocabulary: int
    """Number of tokens that the model can draw; ids are below it."""


def body(request: DrawRequest, reader: Reader, name: str, *, own_ends: bool = True) -> dict[str, Any]:
    """Return the request for the model that the server calls `name`.

    own_ends: True if the server may end the response at a string of `request.complete_at`. Its decoder and ours can
    differ, so if an answer is not complete for ours, it is requested again without this.
    """
    sampling, early = request.sampling, request.complete_at
    # before `min_new_tokens` vLLM gives every stop token the probability 0, and only end tokens have that
    more = early.ids if early is not None and not sampling.min_new_tokens else frozenset()
    asked = {
        "model": name,
        "prompt": list(request.prompt.token_ids),
        "max_tokens": sampling.max_new_tokens,
        "min_tokens": sampling.min_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": stream(request),
        "ignore_eos": True,  # it has one end token of its own; ours are all among the stop tokens
        "stop_token_ids": sorted({*reader.ends, *more}),
        "logprobs": 0,
        "return_token_ids": True,
        "skip_special_tokens": True,
        "spaces_between_special_tokens": False,
    }
    if early is not None and early.strings and own_ends:
        asked |= {"stop": list(early.strings), "include_stop_str_in_output": True}
    return asked


def stream(request: DrawRequest) -> int:
    """Return the seed of a request's random stream: vLLM has a separate stream for each request."""
    name = f"{request.seed}\0{request.row}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> 1


def read(
    answer: Any, request: DrawRequest, reader: Reader, complete: Callable[[Sequence[int]], bool] | None, version: int
) -> DrawnResponse:
    """Return the response in an answer. complete: the test of `request.complete_at`.

    Raises `BadAnswer` for other answers: one that was aborted, is incomplete, is to another prompt, has tokens that the
    request excludes, or has no finite log-probability for each token.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadAnswer(f"it has no single choice: {str(answer)[:200]}")
    choice = choices[0]
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise BadAnswer(f"it was given up: finish reason {reason!r}")
    if choice.get("prompt_token_ids") != list(request.prompt.token_ids):
        raise BadAnswer("it answers another prompt")
    ids: Any = choice.get("token_ids")
    logp: Any = (choice.get("logprobs") or {}).get("token_logprobs")
    _check_tokens(ids, logp, reader)
    used = answer.get("usage") or {}
    if (used.get("prompt_tokens"), used.get("completion_tokens")) != (len(request.prompt), len(ids)):
        raise BadAnswer(f"it counts other tokens than it has: {used}")
    return finished(ids, logp, request, reader, complete, version, at_limit=reason == "length")


def part(event: Any, request: DrawRequest, reader: Reader) -> tuple[list[int], list[float], str | None] | None:
    """Return the tokens, log-probabilities and finish reason of an event of a stream; None for an event without tokens."""
    choices = event.get("choices") if isinstance(event, dict) else None
    if not isinstance(choices, list):
        raise BadAnswer(f"it has no choices: {str(event)[:200]}")
    if not choices:  # the count at the end
        return None
    choice = choices[0]
    reason = choice.get("finish_reason")
    if reason not in (None, "stop", "length"):
        raise BadAnswer(f"it was given up: finish reason {reason!r}")
    if choice.get("prompt_token_ids") not in (None, list(request.prompt.token_ids)):
        raise BadAnswer("it answers another prompt")
    ids, logp = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
    if not ids and reason is None:
        return None
    if ids:
        _check_tokens(ids, logp, reader)
    return ids or [], logp or [], reason


def _check_tokens(ids: Any, logp: Any, reader: Reader) -> None:
    if not isinstance(ids, list) or not ids:
        raise BadAnswer("it has no tokens")
    if not all(type(token) is int and 0 <= token < reader.vocabulary for token in ids):
        raise BadAnswer("it has tokens that the model does not know")
    if not isinstance(logp, list) or len(logp) != len(ids):
        raise BadAnswer("it has not one log-probability for each token")
    if not all(isinstance(value, int | float) and math.isfinite(value) and value <= ROUNDING for value in logp):
        raise BadAnswer("it has a log-probability that is missing, not finite or above 0")


def finished(
    ids: list[int], logp: list[float], request: DrawRequest, reader: Reader,
    complete: Callable[[Sequence[int]], bool] | None, version: int, *, at_limit: bool, start: int = 0,
) -> DrawnResponse:  # fmt: skip
    """Return the tokens up to the end of the response. Raises `BadAnswer` if it does not end there, or must not.

    start: place of the first token at which it may end.
    """
    sampling = request.sampling
    for place, token in enumerate(ids[start:], start):
        if token in reader.ends and place < sampling.min_new_tokens:
            raise BadAnswer(f"it ends after {place} tokens, and min_new_tokens is {sampling.min_new_tokens}")
        early = complete is not None and token not in reader.ends and complete(ids[: place + 1])
        if early or token in reader.ends:
            if token in reader.ends and place + 1 < len(ids):
                raise BadAnswer("it goes on behind an end token")
            return DrawnResponse(ids[: place + 1], "early" if early else "end", version, logp[: place + 1])
    if len(ids) > sampling.max_new_tokens:
        raise BadAnswer(f"it has {len(ids)} tokens, and {sampling.max_new_tokens} were asked for")
    if len(ids) < sampling.max_new_tokens or not at_limit:
        raise BadAnswer(f"it stops after {len(ids)} tokens without an end")
    return DrawnResponse(ids, "length", version, logp)
