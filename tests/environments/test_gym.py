"""Packages with Gymnasium's interface, and those that differ from it a little, as small stand-ins."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import stand_in_games
from scripted import Script, played, rewards
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import Unavailable, UserCodeError
from fgrl.components.environments.gym import Gym
from fgrl.kinds import Environment
from fgrl.kinds.specs import Sampling
from fgrl.registry import Problems, build
from fgrl.rollouts.conversing import Conversing
from fgrl.types import DrawnResponse, Message, Sample

ONE = Sample(id="one", prompt="", meta={"seed": 7})


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    return tiny(tiny_model_dir)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    stand_in_games.HANG.clear()
    stand_in_games.AT_ONCE.clear()
    yield
    stand_in_games.HANG.set()


def game(kind: str = "guess", *, make: str = "stand_in_games:make", **arguments: Any) -> Gym:
    own = {name: arguments.pop(name) for name in set(arguments) & set(Gym.model_fields)}
    return Gym(make=make, arguments={"kind": kind, **arguments}, **own)


def several(model: Any, environment: Gym, texts: list[str], rows: int = 4) -> list[DrawnResponse]:
    """Conversations of prompts with different seeds."""
    samples = [Sample(id=str(row), prompt="", meta={"seed": row}) for row in range(rows)]
    drawer = Conversing(Script(model.tokenizer, texts, rows), environment, model)
    sampling = Sampling(max_new_tokens=2000, max_prompt_tokens=500)
    return [one for (one,) in rollouts.draw(model, drawer, samples, sampling, 1, seed=0)]


def by_hand(seed: int, turns: int) -> list[str]:
    own, other = random.Random(seed), numpy.random.RandomState(seed)
    return [str((own.randrange(100), int(other.randint(100)))) for _ in range(turns)]


@pytest.mark.parametrize("kind", ["guess", "gem"])
def test_gymnasiums_interface(model: Any, kind: str) -> None:
    talk = played(model, game(kind), ["a", "bcd", "end"], ONE)
    told = "one" if kind == "guess" else "None"
    assert talk.prompt.turns[0].content == f"Sample {told}: guess a number below 100"
    assert [turn.observation for turn in talk.turns] == by_hand(7, 3)
    assert rewards(talk) == [float(each[1:].split(",")[0]) for each in by_hand(7, 3)]
    assert [turn.numbers for turn in talk.turns] == [{"said": 1.0}, {"said": 3.0}, {"said": 3.0}]
    assert talk.terminated
    assert not played(model, game(kind), ["stop"], ONE).terminated


def test_each_conversation_has_random_numbers_of_its_own(model: Any) -> None:
    """They take turns, and neither the process's numbers nor each other's change."""
    random.seed(5)
    numpy.random.seed(5)
    before = random.getstate(), numpy.random.get_state()
    drawn = several(model, game(seconds=0.4), ["a", "b", "end"])  # longer than batches wait for all
    assert [[turn.observation for turn in each.turns] for each in drawn] == [by_hand(row, 3) for row in range(4)]
    assert set(stand_in_games.AT_ONCE) == {1}
    assert random.getstate() == before[0]
    assert all(map(numpy.array_equal, numpy.random.get_state()[1:], before[1][1:]))


def test_others_answer_at_the_same_time(model: Any) -> None:
    several(model, game(seconds=0.3, process_random=False), ["a", "end"])
    assert max(stand_in_games.AT_ONCE) > 1


def test_one_that_hangs_holds_up_nobody_for_longer_than_its_limit(model: Any) -> None:
    random.seed(5)
    before = random.getstate()
    environment = game(fault="hang", step_seconds=0.5)
    samples = [Sample(id=str(row), prompt="", meta={"seed": row}) for row in range(6)]
    script = Script(model.tokenizer, ["a", "b", "end"], 6)
    script.said[rollouts.conversing.stream_of(2, 1)] = "hang"
    drawer = Conversing(script, environment, model)
    sampling = Sampling(max_new_tokens=2000, max_prompt_tokens=500)
    drawn = [one for (one,) in rollouts.draw(model, drawer, samples, sampling, 1, seed=0)]
    assert [each.lost is None for each in drawn] == [row != 2 for row in range(6)]
    assert drawn[2].lost == "TimeoutError: no answer within step_seconds, 0.5 s"
    for row in (0, 1, 3, 4, 5):
        assert [turn.observation for turn in drawn[row].turns] == by_hand(row, 3)
    assert not stand_in_games.LATE
    stand_in_games.HANG.set()
    assert random.getstate() == before


def test_what_a_step_raises_or_returns(model: Any) -> None:
    raised = played(model, game(fault="raise", error_reward=-1.0), ["a", "raise", "end"], ONE)
    assert rewards(raised)[1] == -1.0
    assert raised.turns[1].error == "ValueError: no number"
    assert raised.turns[1].observation == "Error: no number"
    assert raised.terminated
    assert played(model, game(fault="bytes"), ["bytes"], ONE).lost == "the observation is no text but bytes"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        (
            game("chess"),
            r"stand_in_games:make\(kind='chess'\) cannot be played: ValueError: Environment chess not found",
        ),
        (game("two"), "The number of players has to be 2, received 1\n    = .* games for one player can be played"),
        (game("free"), r"it is a game for several players \(FFAMultiPlayerState\)"),
        (game(fault="first"), "its first observation is no text but b"),
        (game(depth=3), "unexpected keyword argument 'depth'"),
        (game(make="stand_in_games:mak"), "AttributeError: module 'stand_in_games' has no attribute 'mak'"),
    ],
)
def test_what_cannot_be_played(model: Any, environment: Gym, why: str) -> None:
    with pytest.raises(UserCodeError, match=why):
        played(model, environment, ["a"], ONE)


@pytest.mark.parametrize("raw", [True, False])
def test_textarenas_interface(model: Any, raw: bool) -> None:
    number = random.Random(7).randrange(10)
    talk = played(model, game("arena", raw=raw), ["10", "11", str(number)], ONE)
    first = "Guess." if raw else "[GAME] Guess."
    assert talk.prompt.turns[0].content == first
    said = ["Not 10.", "Not 11."] if raw else ["[GAME] Not 10.", "[GAME] Not 11."]
    assert [turn.observation for turn in talk.turns] == [*said, "Found."]
    assert rewards(talk) == [0.0, 0.0, 0.75]
    assert talk.turns[2].numbers == {"step": 1.0, "turn_count": 2.0, "invalid_move": 0.0}
    assert talk.terminated


def test_skyrl_gyms_interface(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("skyrl_gym")
    package.make = stand_in_games.make_task  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "skyrl_gym", package)
    environment = Gym(make="skyrl_gym:make", arguments={"env_id": "task"}, process_random=False, max_turns=4)
    sample = Sample(
        id="0", prompt=[Message(role="system", content="S"), Message(role="user", content="Q")], reference="42"
    )
    talk = played(model, environment, ["1", "2", "42"], sample)
    assert [turn.content for turn in talk.prompt.turns] == ["S", "Q Think."]
    assert rewards(talk) == [0.0, 0.0, 1.0]
    assert [turn.observation for turn in talk.turns] == ["Again.\nPlease.", "Again.\nPlease.", ""]
    assert talk.turns[2].numbers == {"right": 1.0, "steps": 3.0}
    assert len(played(model, environment, ["1"] * 4, sample).turns) == 4


def test_a_missing_package_is_named_before_anything_runs() -> None:
    with pytest.raises(
        Unavailable, match=r"make: nowhere\.games:make needs the package nowhere, which is not installed"
    ):
        Gym(make="nowhere.games:make").check_machine()
    Gym(make="stand_in_games:make").check_machine()
    with pytest.raises(Problems, match="make"):
        build(Environment, {"name": "gym", "make": "gem"})


def test_a_missing_known_package_is_in_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"gem:make needs the package gem, .*pip install 'fgrl\[gym\]'"):
        Gym(make="gem:make").check_machine()
