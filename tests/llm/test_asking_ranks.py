"""Two real processes that ask together get what one process gets, and money and answers are booked once."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer
from patience import HUNG
from pipeline_helpers import environment

pytestmark = pytest.mark.usefixtures("warm")

SCRIPT = Path(__file__).parents[1] / "support" / "asking_rank.py"


@dataclass
class Asked:
    folder: Path
    ranks: list[dict[str, Any]]
    requests: int
    """That reached the endpoint."""

    def ledger(self, stage: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / stage / "calls.jsonl").read_text().splitlines()]


def answer(prompt: str, body: dict[str, Any]) -> str:
    """A number, at the second attempt for one of the questions; YES to every other judgement."""
    if "<text>" in prompt:
        return "YES" if "lamp 1" in prompt or "lamp 2" in prompt else "NO"
    first = len(body["messages"]) == 1
    return "Hm." if first and body["messages"][0]["content"].endswith(" 2") else "7"


def run(folder: Path, model: Path, world: int) -> Asked:
    folder.mkdir()
    with FaultServer(answer=answer) as server:
        commands = [[sys.executable, SCRIPT, str(rank), str(world), folder, model, server.url] for rank in range(world)]
        processes = [
            subprocess.Popen(list(map(str, command)), env=environment(), stderr=subprocess.PIPE, text=True)
            for command in commands
        ]
        errors = [process.communicate(timeout=HUNG)[1] for process in processes]
        assert [process.returncode for process in processes] == [0] * world, "\n".join(errors)
        ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world)]
        return Asked(folder, ranks, len(server.seen))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Asked:
    return run(tmp_path_factory.mktemp("one") / "run", tiny_model_dir, 1)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Asked:
    return run(tmp_path_factory.mktemp("two") / "run", tiny_model_dir, 2)


def rounded(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Batches differ, and with them the last digits of log-probabilities."""
    return [
        {**answer, "logprobs": answer["logprobs"] and {token: round(p, 4) for token, p in answer["logprobs"].items()}}
        for answer in answers
    ]


def test_a_local_model_answers_as_in_one_process_and_every_rank_gets_all(one: Asked, two: Asked) -> None:
    first, second = two.ranks
    assert first["local"] == second["local"]
    assert rounded(first["local"]) == rounded(one.ranks[0]["local"])
    assert len({answer["text"] for answer in first["local"]}) > 6
    assert first["counts"] == second["counts"] == one.ranks[0]["counts"]


def test_each_rank_draws_a_part_with_its_own_model(one: Asked, two: Asked) -> None:
    first, second = (rank["drew"] for rank in two.ranks)
    assert not set(first) & set(second)
    assert sorted([*first, *second]) == sorted(one.ranks[0]["drew"])
    assert len(one.ranks[0]["drew"]) == 16  # two of the 18 requests are equal to others
    assert abs(len(first) - len(second)) <= 3


def test_answers_and_money_are_booked_once(one: Asked, two: Asked) -> None:
    lines = two.ledger("one")
    assert len(lines) == 16
    assert {line["key"] for line in lines} == {line["key"] for line in one.ledger("one")}
    for rank in two.ranks:
        assert rank["again"] == [answer["text"] for answer in rank["local"]]
        assert rank["drew twice"] == 0
    assert two.ledger("two") == []


def test_a_limit_holds_over_all_ranks_and_stops_all(one: Asked, two: Asked) -> None:
    assert len(two.ledger("three")) == 3
    messages = {rank["over"] for rank in (*one.ranks, *two.ranks)}
    assert len(messages) == 1
    assert "3 of 3 calls are made" in messages.pop()


def test_an_endpoint_is_asked_by_one_rank_and_all_read_its_answers(one: Asked, two: Asked) -> None:
    wanted = [[7, 1, None], [7, 1, None], [7, 2, None], [7, 1, None]]
    assert [rank["endpoint"] for rank in (*one.ranks, *two.ranks)] == [wanted] * 3
    assert two.ranks[0]["endpoint counts"] == two.ranks[1]["endpoint counts"] == one.ranks[0]["endpoint counts"]
    assert two.requests == one.requests == 5 + 4


def test_a_judge_decides_what_every_rank_has(one: Asked, two: Asked) -> None:
    assert one.ranks[0]["judge"] == [[False, True, True, False], [False]]
    assert [rank["judge"] for rank in two.ranks] == [[[False, True], [False]], [[True, False], []]]
    assert two.ranks[0]["judge counts"] == two.ranks[1]["judge counts"] == one.ranks[0]["judge counts"]


def test_ranks_that_do_not_arrive_with_the_same_questions_fail_loudly(two: Asked) -> None:
    (message,) = {rank["different"] for rank in two.ranks}
    assert "requests: 2 on rank 0, 3 on rank 1" in message
    assert (two.folder / "alone.txt").read_text(), "a rank that has ended"
