"""Threads in the place of the processes of a stage."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from patience import HUNG

T = TypeVar("T")


class Threads:
    """The part of `torch.distributed` that is used, with threads for processes; what is handed on is a copy."""

    def __init__(self, world: int) -> None:
        self.world, self.mine = world, threading.local()
        self.meet = threading.Barrier(world, timeout=HUNG)
        self.shelf: list[Any] = [None] * world

    def barrier(self) -> None:
        self.meet.wait()

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return self.mine.rank

    def get_world_size(self) -> int:
        return self.world

    def all_gather_object(self, found: list[Any], item: Any) -> None:
        self.shelf[self.mine.rank] = item
        self.meet.wait()
        found[:] = copy.deepcopy(self.shelf)
        self.meet.wait()

    def broadcast_object_list(self, found: list[Any]) -> None:
        if self.mine.rank == 0:
            self.shelf[0] = list(found)
        self.meet.wait()
        found[:] = copy.deepcopy(self.shelf[0])
        self.meet.wait()

    def all(self, work: Callable[[int], T]) -> list[T]:
        """What `work(rank)` returns in every process."""

        def one(rank: int) -> T:
            self.mine.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self.world) as pool:
            return list(pool.map(one, range(self.world)))
