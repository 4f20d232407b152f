"""Questions of all processes of a distributed stage, put by one of them: only the first asks a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fgrl import lazy

distributed = lazy.load("torch.distributed")

T = TypeVar("T")
V = TypeVar("V")
N = TypeVar("N")


def first_asks(mine: Sequence[T], ask: Callable[[list[T]], tuple[list[V], N]]) -> tuple[list[V], N]:
    """What `ask` says of `mine`, and what it notes of everybody's items.

    The first process asks for the items of all, in one call, and hands the answers on. Where it fails, all fail with the
    same error. A collective operation: every process has to call it, also with nothing to ask. Items, answers and notes
    are pickled between our own processes.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return ask(list(mine))
    rank = distributed.get_rank()
    everybody: list[list[T]] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(everybody, list(mine))
    told: list[Any] = [None]
    if rank == 0:
        try:
            told = [ask([item for part in everybody for item in part])]
        except Exception as problem:
            told = [problem]
    distributed.broadcast_object_list(told)
    if isinstance(told[0], Exception):
        raise told[0]
    answers, note = told[0]
    start = sum(len(part) for part in everybody[:rank])
    return answers[start : start + len(mine)], note
