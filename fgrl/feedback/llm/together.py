"""Questions of all processes of a distributed stage.

Every function here is a collective operation: all ranks have to call it, in the same order, also with nothing to ask.
Where they arrive with different questions all of them get a `RuntimeError`; a rank that has ended closes its
connection, which is an error in the others; one that never arrives is found by the time limit of the process group.
What is exchanged is pickled between our own processes. In a single process nothing is exchanged, and torch is not
loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from fgrl.base import lazy, ranks
from fgrl.base.errors import FAILED, FgrlError
from fgrl.kinds import Client
from fgrl.kinds.functions import as_user_error
from fgrl.types import Completion, Request

distributed = lazy.load("torch.distributed")

T = TypeVar("T")
V = TypeVar("V")
W = TypeVar("W")
R = TypeVar("R")

Share = Callable[[list[W]], list[R]]
"""Function from work to its results, in order."""


def everybody(items: Sequence[T]) -> list[T]:
    """Return the items of all ranks, in the order of the ranks."""
    return [item for part in _gathered(list(items)) for item in part]


def same_requests(requests: Sequence[Request]) -> None:
    """Raise `RuntimeError` on every rank when they do not all ask the same."""
    if ranks.connected() == 1:
        return
    digest = hashlib.sha256("\n".join(request.model_dump_json() for request in requests).encode()).hexdigest()
    arrived = _gathered((len(requests), digest))
    if len(set(arrived)) > 1:
        counts = ", ".join(f"{count:,} on rank {number}" for number, (count, _digest) in enumerate(arrived))
        raise RuntimeError(
            f"the processes of this stage ask a model different questions (requests: {counts}). Every rank has to make the "
            "same calls in the same order: collect what each rank wants to ask with `fgrl.feedback.llm.together.everybody` first"
        )


def complete(client: Client, requests: Sequence[Request]) -> list[Completion]:
    """Return `client.complete(requests)` on every rank; all ranks have the same requests. If a client is not
    `collective`, only rank 0 calls it.
    """
    if client.collective or ranks.connected() == 1:
        return client.complete(requests)
    return lead(lambda _share: client.complete(requests), list)


def lead(direct: Callable[[Share[W, R]], V], answer: Share[W, R]) -> V:
    """Return on every rank what `direct` returns on rank 0.

    `direct` gets a function that shares work out: it is split over the ranks, each rank does its part with `answer`,
    and the results come back in order. An exception of rank 0, or of another rank's `answer`, is raised on every rank.
    """
    if ranks.connected() == 1:
        return direct(answer)
    if ranks.place() == 0:
        return _get(_broadcast(_attempt(direct, lambda work: _shared_out(list(work), answer))))
    while isinstance(order := _broadcast(None), list):
        _gathered(_attempt(answer, _part(order)))
    return _get(order)


def in_all(work: Callable[[], T]) -> T:
    """Return the result of `work` in this process. An error that a person can act on, including errors of the user's
    own code, is raised by all processes at once.
    """
    done: T | None = None
    failure: FgrlError | None = None
    try:
        done = work()
    except Exception as error:
        if isinstance(error, FgrlError) and error.told:
            raise
        failure = as_user_error(error)
        if failure is None and isinstance(error, FgrlError) and error.exit_code != FAILED:
            failure = error
        if failure is None:
            raise
    _raise_first(everybody([failure]))
    return cast(T, done)


def most(count: int) -> int:
    """Return the largest count of all processes. If a process has failed in `in_all` meanwhile, raise its error."""
    counts = everybody([count])
    _raise_first(counts)
    return max(counts)


def _raise_first(items: Sequence[Any]) -> None:
    for item in items:
        if isinstance(item, FgrlError):
            item.told = True
            raise item


def _part(work: list[W]) -> list[W]:
    """Return this rank's part: parts are contiguous, and their sizes differ by at most one."""
    first, last = (len(work) * number // ranks.connected() for number in (ranks.place(), ranks.place() + 1))
    return work[first:last]


def _attempt(work: Callable[[Any], Any], given: Any) -> tuple[Any, BaseException | None]:
    """Return the result, or the exception that was raised instead."""
    try:
        return work(given), None
    except (Exception, KeyboardInterrupt) as problem:
        return None, problem


def _get(outcome: tuple[Any, BaseException | None]) -> Any:
    value, problem = outcome
    if problem is not None:
        raise problem
    return value


def _shared_out(work: list[W], answer: Share[W, R]) -> list[R]:
    """Return the results of shared work, on rank 0, while the other ranks wait for work."""
    _broadcast(work)
    return [result for part in _gathered(_attempt(answer, _part(work))) for result in _get(part)]


def _gathered(item: T) -> list[T]:
    """Return the items of all ranks."""
    if ranks.connected() == 1:
        return [item]
    parts: list[Any] = [None] * ranks.connected()
    distributed.all_gather_object(parts, item)
    return parts


def _broadcast(item: Any) -> Any:
    """Return rank 0's item, on every rank."""
    box = [item]
    distributed.broadcast_object_list(box)
    return box[0]
