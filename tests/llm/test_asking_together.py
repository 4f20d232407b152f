"""Processes that train together ask together: one asks, or all share the work, and all hear of the outcome."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar

import pytest
from rank_threads import Threads

from fgrl.base import ranks
from fgrl.base.errors import OverBudget
from fgrl.feedback.llm import together
from fgrl.feedback.llm.asking import Question, ask
from fgrl.kinds import Client
from fgrl.types import Completion, Message, Request

T = TypeVar("T")

ITEMS = [["a", "bb", "a"], [], ["ccc", "a"]]


class Lengths(Client):
    """Answers with the length of the question; knows which rank asked for what."""

    seen: list[tuple[int, list[str]]] = []

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        texts = [request.messages[0].content for request in requests]
        self.seen.append((ranks.place(), texts))
        if "dddd" in texts:
            raise OverBudget("2 of 2 calls are made")
        return [Completion(text=str(len(text)), finish="stop") for text in texts]


def question(text: str) -> Question[int]:
    return Question(Request(messages=[Message(role="user", content=text)]), int)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Threads:
    monkeypatch.setitem(sys.modules, "torch.distributed", ModuleType("torch.distributed"))
    threads = Threads(3)
    monkeypatch.setattr(together, "distributed", threads)
    monkeypatch.setattr(ranks, "distributed", threads)
    return threads


def test_alone_nobody_else_is_asked() -> None:
    client = Lengths()
    assert (ranks.connected(), ranks.place(), together.everybody(["a", "bb"])) == (1, 0, ["a", "bb"])
    assert [answer.value for answer in ask(client, [question("a"), question("bb")])] == [1, 2]
    assert client.seen == [(0, ["a", "bb"])]
    assert together.lead(lambda share: share([3, 4]), lambda work: [-number for number in work]) == [-3, -4]


def test_the_first_process_asks_for_all_and_everybody_hears_of_its_failure(world: Threads) -> None:
    client = Lengths()

    def one(rank: int) -> tuple[list[int | None], str]:
        items = together.everybody(ITEMS[rank])
        answers = [answer.value for answer in ask(client, [question(text) for text in items])]
        with pytest.raises(OverBudget) as raised:
            ask(client, [question("dddd")])
        return answers, str(raised.value)

    found = world.all(one)
    assert [answers for answers, _ in found] == [[1, 2, 1, 3, 1]] * 3
    assert {said for _, said in found} == {"2 of 2 calls are made"}
    assert client.seen == [(0, ["a", "bb", "a", "ccc", "a"]), (0, ["dddd"])]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_work_is_split_over_the_ranks_and_comes_back_in_order(world: Threads, count: int) -> None:
    did: list[list[int]] = [[], [], []]

    def one(rank: int) -> tuple[list[int], int]:
        def answer(work: list[int]) -> list[int]:
            did[rank] += work
            return [10 * number for number in work]

        def direct(share: Callable[[list[int]], list[int]]) -> tuple[list[int], int]:
            first = share(list(range(count)))
            return first + share([100]), rank

        return together.lead(direct, answer)

    assert world.all(one) == [([*range(0, 10 * count, 10), 1000], 0)] * 3
    assert sorted(number for part in did for number in part) == [*range(count), 100]
    if count == 7:
        assert [len(part) for part in did] == [2, 2, 4]


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_an_error_of_one_rank_is_raised_on_all(world: Threads, broken: int) -> None:
    def one(rank: int) -> str:
        def answer(work: list[int]) -> list[int]:
            if rank == broken:
                raise MemoryError(f"rank {rank} is full")
            return work

        with pytest.raises(MemoryError) as raised:
            together.lead(lambda share: share([1, 2, 3]), answer)
        return str(raised.value)

    assert set(world.all(one)) == {f"rank {broken} is full"}


def test_ctrl_c_on_the_first_rank_ends_all(world: Threads) -> None:
    def stop(share: object) -> None:
        raise KeyboardInterrupt

    def one(rank: int) -> bool:
        with pytest.raises(KeyboardInterrupt):
            together.lead(stop, lambda work: work)
        return True

    assert world.all(one) == [True] * 3


def test_ranks_that_ask_different_things_are_told_so(world: Threads) -> None:
    client = Lengths()

    def one(rank: int) -> str:
        with pytest.raises(RuntimeError) as raised:
            ask(client, [question(text) for text in ITEMS[rank]])
        return str(raised.value)

    (said,) = set(world.all(one))
    assert "3 on rank 0, 0 on rank 1, 2 on rank 2" in said
    assert "together.everybody" in said
    assert client.seen == []
