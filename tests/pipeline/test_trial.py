"""Small trainings with a person's component, and what they find."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from pipeline_helpers import fgrl
from scratch_registry import scratch_imports

from fgrl.base.console import Console
from fgrl.base.errors import UsageError
from fgrl.experiments import recipe
from fgrl.experiments.pipeline import trial

pytestmark = pytest.mark.usefixtures("warm")

EXAMPLES = Path(__file__).parents[2] / "examples" / "credit"
HEAD = """
from fgrl.training.group_relative import GroupRelative
from fgrl.registry import register
"""
BY_ROUNDING = (
    HEAD
    + """
import torch

@register("by_rounding")
class ByRounding(GroupRelative):
    '''The loss of a micro-batch, divided by its own spread.'''

    def loss(self, model, batch):
        loss, metrics = super().loss(model, batch)
        logp = model.actor.score(batch, temperature=batch.temperature).logp.detach()
        return loss / logp[batch.mask].std(), metrics
"""
)
FORGETS = (
    HEAD
    + """
from pydantic import PrivateAttr

@register("forgets")
class Forgets(GroupRelative):
    '''Every iteration counts for less, which no checkpoint knows.'''

    _seen: int = PrivateAttr(0)

    def combine(self, advantage, rollout, rewards):
        self._seen += 1
        return advantage / self._seen, {}
"""
)
RAISES = (
    HEAD
    + """
@register("raises")
class Raises(GroupRelative):
    '''Divides by zero.'''

    def combine(self, advantage, rollout, rewards):
        return advantage / 0, {"x": 1 / 0}
"""
)


GAME = """
import random
from fgrl import Environment, Episode, register

class Game(Episode):
    def __init__(self, environment, seed):
        self.environment, self.random, self.turn = environment, random.Random(seed), 0

    def step(self, text):
        {step}
        self.turn += 1
        return f"{{self.random.randint(1, 10**9)}}", 0.5, self.turn == 3, False, {{}}

@register("game")
class GameEnvironment(Environment):
    'Three turns.'

    def begin(self, sample, seed):
        {begin}
        return Game(self, seed)
"""
ENGINE = """
import random
from fgrl import Drawer, DrawnResponse, Engine, register

class Opened(Drawer):
    def draw(self, requests):
        found = []
        for place, one in enumerate(requests):
            stream = random.Random(f"{stream}")
            ids = [stream.randrange(3, 200) for _ in range({count})]
            found.append(DrawnResponse(ids, "length", {version}))
        return found

@register("own")
class Own(Engine):
    'Random tokens.'

    def open(self, model):
        return Opened()
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with scratch_imports():
        yield


def own(folder: Path, text: str) -> Path:
    (folder / "own.py").write_text(text, encoding="utf-8")
    return folder / "own.py"


def first(file: Path, folder: Path, count: int, *overrides: str) -> list[trial.Finding]:
    (cls,) = trial.tried_components(file)
    (folder / "trial").mkdir()
    path = trial.write_recipe(cls, file, folder / "trial")
    return list(islice(trial.findings(cls, path, overrides, Console(quiet=True)), count))


def test_a_loss_that_depends_on_the_micro_batch_is_found(tmp_path: Path) -> None:
    trains, cut = first(own(tmp_path, BY_ROUNDING), tmp_path, 2)
    assert trains.held
    assert not cut.held
    assert cut.text.startswith("micro-batches of one row: ")


def test_what_no_checkpoint_holds_is_found(tmp_path: Path) -> None:
    file = own(tmp_path, FORGETS)
    (cls,) = trial.tried_components(file)
    path = trial.write_recipe(cls, file, tmp_path)
    whole = trial._train(path, [], tmp_path / "runs" / "whole", Console(quiet=True))
    found = trial._killed(path, [], tmp_path / "runs" / "killed", whole, Console(quiet=True))
    assert not found.held
    assert "what changes while training belongs in state_dict()" in found.text


def test_a_method_of_the_examples_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    """A model that is trained beside the policy is compared, too."""
    file = EXAMPLES / "prime.py"
    (cls,) = trial.tried_components(file)
    path = trial.write_recipe(cls, file, tmp_path)
    whole = trial._train(path, [], tmp_path / "runs" / "whole", Console(quiet=True))
    assert list((whole / "auxiliary" / "prm").glob("*.safetensors"))
    assert trial._killed(path, [], tmp_path / "runs" / "killed", whole, Console(quiet=True)).held


@pytest.mark.parametrize("name", ["weighted_dpo", "tdpo", "top_entropy", "says_answer", "vine"])
def test_every_kind_of_component_has_a_recipe(name: str, tmp_path: Path) -> None:
    (cls,) = trial.tried_components(EXAMPLES / f"{name}.py")
    path = trial.write_recipe(cls, EXAMPLES / f"{name}.py", tmp_path)
    assert recipe.load(path).stages.keys() == {trial.STAGE}


@pytest.mark.parametrize("name", ["weighted_dpo", "says_answer"])
def test_offline_algorithms_and_rewards_are_trained(name: str, tmp_path: Path) -> None:
    """The reward of says_answer is 0 on random bytes: nothing moves, which is an error, not a success."""
    if name == "says_answer":
        with pytest.raises(UsageError, match="did not move the weights"):
            first(EXAMPLES / f"{name}.py", tmp_path, 2)
        return
    assert all(found.held for found in first(EXAMPLES / f"{name}.py", tmp_path, 2))


@pytest.mark.parametrize(
    ("step", "begin", "place", "told"),
    [
        ("pass", "pass", None, "answers in 72 turns"),
        ("random.random()", "self.__dict__['x'] = random.Random(seed)", None, "answers in 72 turns"),
        ("self.random = random", "random.seed(seed)", 2, "another conversation"),
        ("self.environment.__dict__['n'] = self.turn = self.environment.__dict__.get('n', 0) + 1", "pass", 2, "another conversation"),
        ("if len(text) > 90_000: raise ConnectionError('gone')", "pass", 0, "ConnectionError: gone"),
        ("if not text: return text, 'x', False, False, {}", "pass", 0, "the reward is no finite number but 'x'"),
    ],
)  # fmt: skip
def test_environments_get_scripted_texts(step: str, begin: str, place: int | None, told: str, tmp_path: Path) -> None:
    found = first(own(tmp_path, GAME.format(step=step, begin=begin)), tmp_path, 3)
    assert [each.held for each in found] == [number != place for number in range(3)]
    assert told in found[place or 0].text


def test_what_raises_on_a_text_is_told(tmp_path: Path) -> None:
    found = first(own(tmp_path, GAME.format(step="text.index('y')", begin="pass")), tmp_path, 2)
    assert found[0].held
    assert "it raised on " in found[0].text
    assert "ValueError: substring not found), with the reward 0" in found[0].text


@pytest.mark.parametrize(
    ("stream", "count", "version", "place", "told"),
    [
        ("{one.seed}.{one.row}", 8, "self.version", None, ""),
        ("{one.seed}.{place}", 8, "self.version", 1, "in another order and alone"),
        ("{one.row}", 8, "self.version", 2, "another seed gives the same responses"),
        ("{one.seed}.{one.row}", 5, "self.version", 0, "a request that was given up is an error"),
        ("{one.seed}.{one.row}", 9, "self.version", 0, "a response of 9 tokens"),
        ("{one.seed}.{one.row}", 8, "0", 0, "version 0 after"),
    ],
)
def test_engines_are_asked_in_several_ways(
    stream: str, count: int, version: str, place: int | None, told: str, tmp_path: Path
) -> None:
    found = first(own(tmp_path, ENGINE.format(stream=stream, count=count, version=version)), tmp_path, 3)
    assert [each.held for each in found] == [number != place for number in range(3)]
    assert told in found[place or 0].text


@pytest.mark.evidence
@pytest.mark.parametrize(
    "text",
    [
        GAME.format(step="pass", begin="pass"),
        ENGINE.format(stream="{one.seed}.{one.row}", count=8, version="self.version"),
    ],
    ids=["environment", "engine"],
)
def test_environments_and_engines_are_trained(text: str, tmp_path: Path) -> None:
    assert [each.held for each in first(own(tmp_path, text), tmp_path, 9)] == [True] * 7


def test_a_file_without_such_a_component_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="registers no component of the kinds"):
        trial.tried_components(own(tmp_path, "x = 1\n"))


def test_the_error_of_the_component_has_its_place_and_its_exit_code(tmp_path: Path) -> None:
    done = fgrl("check", own(tmp_path, RAISES), cwd=tmp_path)
    assert done.returncode == 7
    assert "own.py:10" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("ZeroDivisionError") == 1


@pytest.mark.evidence
def test_the_command_tells_one_line_each(tmp_path: Path) -> None:
    done = fgrl("check", EXAMPLES / "top_entropy.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["ok"] * 4
    done = fgrl("check", own(tmp_path, BY_ROUNDING), "--json", cwd=tmp_path)
    assert done.returncode == 7
    assert '"held": false' in done.stdout
