"""Estimates of calls, tokens and money for `fgrl plan`, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fgrl.base.errors import DataError, NotYet, Unavailable
from fgrl.feedback.llm.cached import Cached
from fgrl.feedback.llm.store import FILE, CompletionStore
from fgrl.kinds import Asker, AtMost, Client, Peek, ToDraw, stated
from fgrl.types import Request

MILLION = 1_000_000
TOO_LONG = "too long"
"""Entry of an estimate: calls that may have more `tokens`, prompt and answer together, than the `context` of their
`model`.
"""


@dataclass(frozen=True)
class Load:
    """Total of the requests to one client."""

    calls: int
    prompt: int
    """Tokens of the prompts."""
    completion: int | None
    """Maximum number of tokens of the answers; None: no limit is set."""
    longest: int = 0
    """Tokens of the longest prompt with its longest answer, as far as the answer is limited."""
    fewer: bool = False
    """True if there may be fewer calls (`AtMost.fewer`)."""
    cached: int = 0
    """Number of further requests that are already answered."""


def section(compute: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Return a part of `Stage.estimate`: the result of `compute` under "calls"; empty if it is None.

    If it cannot be known yet, the part has the stage that has to run first ("after"). If the data cannot be read, it
    has the reason ("unknown").
    """
    try:
        calls = compute()
        return {} if calls is None else {"calls": calls}
    except NotYet as upstream:
        return {"calls": {"after": str(upstream)}}
    except (DataError, Unavailable) as problem:
        return {"calls": {"unknown": str(problem).split("\n")[0]}}


def bill(loads: Sequence[tuple[Client, Load]], *, bound: bool = False) -> dict[str, Any] | None:
    """Return the sum over clients; None if no client is asked. It has `calls` to make, `cached` answers that exist
    already, `prompt tokens` of the calls, the maximum of `completion tokens` and of `usd` (None if it is unknown), and
    `too long` if a call may exceed the context length of its model. Retries are not included.

    bound: the tokens are an upper bound, and so are the calls if there may be `fewer`.
    """
    if not loads:
        return None
    total: dict[str, Any] = {
        "calls": sum(load.calls for _client, load in loads),
        "cached": sum(load.cached for _client, load in loads),
        "prompt tokens": sum(load.prompt for _client, load in loads),
        "completion tokens": _sum(load.completion for _client, load in loads),
        "usd": _sum(_price(client, load) for client, load in loads),
    }
    too_long = {
        model["model"]: model | {"context": context, "tokens": load.longest}
        for client, load in loads
        if isinstance(client, Cached) and (context := client.context_length()) is not None and load.longest > context
        for model in [{"model": client.identity()["model"]}]
    }
    total |= {TOO_LONG: list(too_long.values())} if too_long else {}
    total |= {"bound": True} if bound else {}
    return total | ({"fewer": True} if any(load.fewer for _client, load in loads) else {})


def _price(client: Client, load: Load) -> float | None:
    price = client.price()
    if price is None or load.completion is None:
        return None
    return (load.prompt * price[0] + load.completion * price[1]) / MILLION


# -- requests that are known -------------------------------------------------------------------------------------------


def known(client: Client, requests: Sequence[Request], peek: Peek) -> Load:
    """Return the total of these requests."""
    client.look(peek)
    new, cached = open_requests(client, requests, peek)
    return replace(bound(client, [AtMost(request, 1, 0, fewer=False) for request in new]), cached=cached)


def open_requests(client: Client, requests: Sequence[Request], peek: Peek) -> tuple[list[Request], int]:
    """Return the requests that the client will have to send, without duplicates, and the number of answers that it has
    already.
    """
    if not isinstance(client, Cached):
        return list(requests), 0
    distinct = {client.key(request): request for request in requests}
    path = peek.cache / FILE
    if not path.exists():  # opening a store makes one
        return list(distinct.values()), 0
    store = CompletionStore(path)
    try:
        known = store.get(list(distinct))
    finally:
        store.close()
    return [request for key, request in distinct.items() if key not in known], len(known)


def longest_answer(client: Client, request: Request) -> int | None:
    """Return the maximum number of tokens of the answer; None: no limit is set."""
    if isinstance(client, Cached):
        return client.parameters(request).get("max_tokens")
    return request.max_tokens


# -- requests about texts that do not exist yet ------------------------------------------------------------------------


def at_most(asker: Asker, expected: ToDraw, peek: Peek) -> list[tuple[Client, Load]]:
    """Return the clients that a component asks about future responses, each with its maximum load; [] if the component
    asks no client or does not state its requests.
    """
    client = asker.asked_client()
    if client is None:
        return []
    client.look(peek)
    most = stated(asker, "asks_at_most", expected)
    return [] if most is None else [(client, bound(client, most))]


def bound(client: Client, most: Sequence[AtMost]) -> Load:
    """Return the total of the requests if every future text has its maximum length."""
    prompts = [client.count_tokens(ask.request) + ask.missing_tokens for ask in most]
    limits = [longest_answer(client, ask.request) for ask in most]
    return Load(
        sum(ask.calls for ask in most),
        sum(ask.calls * prompt for ask, prompt in zip(most, prompts, strict=True)),
        _sum(None if limit is None else ask.calls * limit for ask, limit in zip(most, limits, strict=True)),
        max((prompt + (limit or 0) for prompt, limit in zip(prompts, limits, strict=True)), default=0),
        any(ask.fewer for ask in most),
    )


def of_passes(loads: Sequence[Load], drawn: int, per_pass: int) -> Load:
    """Return the maximum total of `drawn` prompts that are taken in passes of `per_pass` different prompts.

    loads: one for each prompt. Which prompts an unfinished pass takes is not known: the prompts with the greatest
    numbers are counted, for calls and tokens separately.
    """
    passes, rest = divmod(drawn, per_pass)

    def most(values: Iterable[int]) -> int:
        ordered = sorted(values, reverse=True)
        return passes * sum(ordered[:per_pass]) + sum(ordered[:rest])

    limits = [load.completion for load in loads]
    completion = None if None in limits else most(limit for limit in limits if limit is not None)
    return Load(
        most(load.calls for load in loads),
        most(load.prompt for load in loads),
        completion,
        max(load.longest for load in loads),
        fewer=True,
    )


def _sum(values: Iterable[Any]) -> Any:
    """Return the sum, or None if one of the values is None."""
    listed = list(values)
    return None if None in listed else sum(listed)
