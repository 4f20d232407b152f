"""Planning any shipped recipe asks no network, also where nothing of its models and data is on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from test_recipes import check_plan

from fgrl.experiments.pipeline import estimates, plan
from fgrl.experiments.pipeline.offline import from_cache_only
from fgrl.experiments.recipe import Recipe, load, rows
from fgrl.registry import Problems

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
ADDRESSES = [
    address
    for path in sorted(RECIPES.rglob("*.yaml"))
    for address in (str(path), *(f"{path}::{row}" for row in rows(path)))
]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked of a network that cannot be reached, on a machine with an empty cache that may use it."""
    attempts: list[Any] = []
    connect = socket.socket.connect

    def refuse(*arguments: Any, **_: Any) -> Any:
        attempts.append(arguments)
        raise OSError("the network is cut")

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            refuse(address)
        connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", local_only)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return attempts


FILE = RECIPES / "small" / "definitions.jsonl"
STAND_INS = {
    "vars.sft": "somebody/some-model",
    "vars.human_spans": FILE,
    "vars.human_verdicts": FILE,
    "vars.annotations": FILE,
}


def loaded(address: str) -> Recipe:
    """With a model on the hub, or a file, for what the recipe leaves to its user."""
    try:
        return load(address)
    except Problems as problems:
        return load(address, [f"{name}={STAND_INS[name]}" for name in problems.needs])


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address.removeprefix(f"{RECIPES}/"))
def test_every_recipe_plans_and_asks_no_network(address: str, asked: list[Any], tmp_path: Path) -> None:
    recipe = loaded(address)
    made = plan(recipe, tmp_path / "runs")
    check_plan(made, recipe)
    assert estimates(made)
    assert not asked
    assert not (tmp_path / "runs").exists()


def test_there_are_recipes_to_plan() -> None:
    assert len(ADDRESSES) > 400


def test_what_lies_on_the_hub_is_unknown_and_named(asked: list[Any], tmp_path: Path) -> None:
    estimate = estimates(plan(load(RECIPES / "rtt_qwen3.yaml"), tmp_path / "runs"))
    assert estimate["strong"]["calls"] == {
        "unknown": "sastpg/HIR-16K/HIR_trainv1.jsonl: not in the local cache, and the hub cannot be asked"
    }


def test_the_hub_can_be_asked_again_after_a_plan(asked: list[Any]) -> None:
    """The cut network of these tests is one: without the switch it is asked."""
    with from_cache_only(), pytest.raises(OSError, match="offline"):
        huggingface_hub.HfApi().model_info("somebody/some-model")
    assert not asked
    with pytest.raises(Exception, match="the network is cut"):
        huggingface_hub.HfApi().model_info("somebody/some-model")
    assert asked
