"""Processes that train together ask through the first of them."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fgrl.errors import OverBudget
from fgrl.llm import together
from fgrl.llm.together import first_asks

ITEMS = [["a", "bb", "a"], [], ["ccc", "a"]]


class Threads:
    """The part of `torch.distributed` that is used, with threads for processes; what is handed on is a copy."""

    def __init__(self, world: int) -> None:
        self.world, self.mine = world, threading.local()
        self.meet = threading.Barrier(world, timeout=20)
        self.shelf: list[Any] = [None] * world

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


def lengths(items: list[str]) -> tuple[list[int], str]:
    """What a client says, and what it was asked."""
    return [len(item) for item in items], " ".join(items)


def test_alone_nobody_else_is_asked() -> None:
    assert first_asks(["a", "bb"], lengths) == ([1, 2], "a bb")
    assert first_asks([], lengths) == ([], "")


def test_the_first_process_asks_for_all_and_everybody_hears_of_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Threads(3)
    monkeypatch.setattr(together, "distributed", world)
    seen: list[list[list[str]]] = [[], [], []]

    def one(rank: int) -> tuple[list[int], str, str]:
        world.mine.rank = rank

        def ask(items: list[str]) -> tuple[list[int], str]:
            seen[rank].append(items)
            if "dddd" in items:
                raise OverBudget("2 of 2 calls are made")
            return lengths(items)

        answers, note = first_asks(ITEMS[rank], ask)
        with pytest.raises(OverBudget) as raised:
            first_asks(["dddd"] if rank == 2 else [], ask)
        return answers, note, str(raised.value)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(one, range(3)))
    assert [answers for answers, _, _ in found] == [[1, 2, 1], [], [3, 1]]
    assert {note for _, note, _ in found} == {"a bb a ccc a"}
    assert {told for *_, told in found} == {"2 of 2 calls are made"}
    assert seen == [[["a", "bb", "a", "ccc", "a"], ["dddd"]], [], []]
