"""What ranks of torchrun tell each other: who is lost, on which node, and that a node has other files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import distributed

from fgrl.base.errors import RankLost, UsageError
from fgrl.training import agent_store
from fgrl.training.agent_store import AT_LIMIT, MISSED, STOPPED


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """That of the agent, with four ranks on two nodes, of which rank 0 and 1 are on the first."""
    made = distributed.HashStore()
    for rank, host in enumerate(("a", "a", "b", "b")):
        made.set(agent_store.HOST.format(rank), host)
    monkeypatch.setattr(agent_store, "_store", lambda: made)
    monkeypatch.setattr(agent_store, "SETTLE", 0.0)
    monkeypatch.setenv("MASTER_ADDR", "a.cluster")
    return made


@pytest.mark.parametrize(
    ("said", "how", "message"),
    [
        ({1: MISSED, 2: MISSED}, MISSED, "rank 3 on b ended, or cannot be reached"),
        ({1: MISSED}, MISSED, "ranks 2, 3 on b ended"),
        ({2: MISSED}, MISSED, "rank 1 on a and rank 3 on b ended"),
        (
            {1: MISSED, 2: MISSED},
            AT_LIMIT,
            "rank 3 on b did not come to a collective operation within train.wait_limit",
        ),
        ({1: AT_LIMIT, 2: MISSED}, MISSED, "rank 3 on b did not come"),
        ({1: STOPPED, 2: MISSED}, MISSED, "rank 3 on b ended"),
        ({1: MISSED, 2: MISSED, 3: MISSED}, MISSED, "a connection between the ranks has ended"),
    ],
)
def test_the_rank_that_said_nothing_is_named(store: Any, said: dict[int, bytes], how: bytes, message: str) -> None:
    for rank, word in said.items():
        agent_store.say(rank, word)
    lost = agent_store.cause(0, 4, how)
    assert isinstance(lost, RankLost)
    assert message in str(lost)
    assert agent_store.NEXT_STEP in str(lost)


def test_where_one_was_asked_to_stop_nobody_is_lost(store: Any) -> None:
    for rank, word in {1: MISSED, 2: STOPPED, 3: MISSED}.items():
        agent_store.say(rank, word)
    assert isinstance(agent_store.cause(0, 4, MISSED), KeyboardInterrupt)


def test_the_node_with_the_store_is_named(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended() -> Any:
        raise distributed.DistNetworkError("Broken pipe")

    monkeypatch.setattr(agent_store, "_store", ended)
    assert str(agent_store.cause(2, 4, MISSED)).startswith("the first node, a.cluster, has ended or cannot be reached")


def test_a_node_with_other_files_is_refused(store: Any, tmp_path: Path) -> None:
    first = SimpleNamespace(rank=0, dir=tmp_path / "policy-1")
    first.dir.mkdir()
    assert agent_store.gathered(first, 4) is not None
    second = SimpleNamespace(rank=2, dir=tmp_path / "policy-2")
    with pytest.raises(SystemExit) as left:
        agent_store.gathered(second, 4)
    assert left.value.code == 2
    host = store.get(agent_store.HOST.format(2)).decode().removeprefix("!")
    with pytest.raises(UsageError, match=f"on {host} the recipe, its files or the installed packages"):
        agent_store.gathered(first, 4)
