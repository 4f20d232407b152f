"""What requests will take, before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgrl.kinds import Client, Peek
from fgrl.llm.cached import Cached
from fgrl.llm.store import FILE, CompletionStore
from fgrl.types import Request

MILLION = 1_000_000


def estimate(client: Client, requests: Sequence[Request], peek: Peek) -> dict[str, Any]:
    """For `Stage.estimate`, under "calls".

    `calls` to make, `cached` answers that are there already, `prompt tokens` of the calls, `completion tokens` that they can
    come to at most (None: no limit is set), `usd` at most (None: unknown). Questions put again are not foreseen.
    """
    client.look(peek)
    asked, cached = open_requests(client, requests, peek)
    prompt = sum(client.count_tokens(request) for request in asked)
    limits = [longest_answer(client, request) for request in asked]
    completion = None if None in limits else sum(limit for limit in limits if limit is not None)
    return {
        "calls": len(asked),
        "cached": cached,
        "prompt tokens": prompt,
        "completion tokens": completion,
        "usd": _usd(client, prompt, completion),
    }


def open_requests(client: Client, requests: Sequence[Request], peek: Peek) -> tuple[list[Request], int]:
    """The requests that the client will have to put, each different one once, and how many answers it has already."""
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


def _usd(client: Client, prompt: int, completion: int | None) -> float | None:
    price = client.price()
    if price is None or completion is None:
        return None
    return (prompt * price[0] + completion * price[1]) / MILLION
