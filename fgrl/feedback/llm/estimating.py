"""What requests will take, before anything is spent: calls, tokens and money for `fgrl plan`."""

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
"""In an estimate: calls that may have more `tokens`, prompt and answer together, than the `context` of their `model`.
"""


@dataclass(frozen=True)
class Load:
    """What requests to one client come to."""

    calls: int
    prompt: int
    """Tokens."""
    completion: int | None
    """Tokens, at most; None: no limit is set."""
    longest: int = 0
    """Tokens of the longest prompt with its longest answer, as far as that is limited."""
    fewer: bool = False
    """There may be fewer calls (`AtMost.fewer`)."""
    cached: int = 0
    """Further requests that are answered already."""


def section(compute: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Return a part of `Stage.estimate`: what `compute` gives, under "calls"; nothing for None.

    Where it cannot be known yet, there is the stage that has to run first ("after"), and where the data cannot be read
    the reason ("unknown").
    """
    try:
        calls = compute()
        return {} if calls is None else {"calls": calls}
    except NotYet as upstream:
        return {"calls": {"after": str(upstream)}}
    except (DataError, Unavailable) as problem:
        return {"calls": {"unknown": str(problem).split("\n")[0]}}


def bill(loads: Sequence[tuple[Client, Load]], *, bound: bool = False) -> dict[str, Any] | None:
    """Return the sum over clients: `calls` to make, `cached` answers that exist already, `prompt tokens` of the calls,
    `completion tokens` that they can come to at most, `usd` at most (None: unknown, as above), and `too long` where a
    call may exceed the context length of its model; None when nobody is asked. Retries are not foreseen.

    bound: tokens are a bound, and calls too where there may be `fewer`.
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
    """Return what these requests come to."""
    client.look(peek)
    new, cached = open_requests(client, requests, peek)
    return replace(bound(client, [AtMost(request, 1, 0, fewer=False) for request in new]), cached=cached)


def open_requests(client: Client, requests: Sequence[Request], peek: Peek) -> tuple[list[Request], int]:
    """Return the requests that the client will have to send, each different one once, and how many answers it has
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
    """Tokens that the answer can come to; None: no limit is set."""
    if isinstance(client, Cached):
        return client.parameters(request).get("max_tokens")
    return request.max_tokens


# -- requests about texts that do not exist yet ------------------------------------------------------------------------


def at_most(asker: Asker, expected: ToDraw, peek: Peek) -> list[tuple[Client, Load]]:
    """Whom a component asks about responses to come, and the load at most; [] if it asks nobody or does not state its
    requests.
    """
    client = asker.asked_client()
    if client is None:
        return []
    client.look(peek)
    most = stated(asker, "asks_at_most", expected)
    return [] if most is None else [(client, bound(client, most))]


def bound(client: Client, most: Sequence[AtMost]) -> Load:
    """Return the totals of the requests when every text to come is as long as it may be."""
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
    """At most what `drawn` prompts come to, which are taken in passes of `per_pass` different ones.

    loads: one for each prompt. Which prompts an unfinished pass takes is not known: those with the greatest numbers are
    counted, for calls and tokens separately.
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
    """None when one of them is None."""
    listed = list(values)
    return None if None in listed else sum(listed)
