"""Text environments with Gymnasium's interface, and similar packages that need a few lines of adaptation."""

from __future__ import annotations

import copy
import inspect
import pkgutil
import random
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from pydantic import Field

from fgrl.base import lazy
from fgrl.base.errors import Requires, Unavailable, UserCodeError, find_spec
from fgrl.kinds import Environment, Episode
from fgrl.kinds.environment import FAILURES
from fgrl.registry import register
from fgrl.types import Message, Sample

numpy = lazy.load("numpy")

PACKAGES = ("gem", "skyrl_gym", "textarena")
"""Packages that the extra `gym` installs."""


class Randomness:
    """State of `random` and NumPy for one conversation. The process has this state while the conversation is answered,
    and its own state afterwards.
    """

    _now: ClassVar[Randomness | None] = None
    """Owner of the process's current random state."""
    _process: ClassVar[Any] = None

    def __init__(self, seed: int) -> None:
        self._own = random.Random(seed).getstate(), numpy.random.RandomState(seed % 2**32).get_state()

    def __enter__(self) -> None:
        if Randomness._now is None:  # else a conversation hangs, with a state of its own
            Randomness._process = random.getstate(), numpy.random.get_state()
        Randomness._now = self
        self._set(self._own)

    def __exit__(self, *_error: object) -> None:
        if Randomness._now is self:  # else it has taken too long, and another one is answered
            self._own = random.getstate(), numpy.random.get_state()
            self._set(Randomness._process)
            Randomness._now = None

    @staticmethod
    def _set(states: Any) -> None:
        random.setstate(states[0])
        numpy.random.set_state(states[1])


class Game(Episode):
    """A conversation with Gymnasium's interface."""

    def __init__(self, made: Any, random_state: AbstractContextManager[None]) -> None:
        self.made, self.random_state = made, random_state

    def reset(self, sample: Sample, seed: int) -> Any:
        """Start the conversation and return the first text or messages for the policy."""
        taken = inspect.signature(self.made.reset).parameters
        collects = any(each.kind is each.VAR_KEYWORD for each in taken.values())
        options = {"options": {"sample": sample.model_dump()}} if collects or "options" in taken else {}
        return self.made.reset(seed=seed, **options)[0]

    def step(self, text: str) -> Any:
        with self.random_state:
            return self.answer(text)

    def answer(self, text: str) -> Any:
        """Return Gymnasium's five values."""
        return self.made.step(text)

    def close(self) -> None:
        if hasattr(self.made, "close"):
            self.made.close()


class TextArenaGame(Game):
    """A TextArena game for one player. Its reward is given at the end."""

    _heard = ""

    def reset(self, sample: Sample, seed: int) -> Any:
        self.made.reset(num_players=1, seed=seed)
        state = type(self.made.state).__name__
        if state != "SinglePlayerState":
            raise ValueError(f"it is a game for several players ({state})")
        return self._new("")

    def answer(self, text: str) -> Any:
        done, info = self.made.step(text)
        if not done:
            return self._new(text), 0.0, False, False, info
        rewards, about = self.made.close()
        return str(about[0].get("reason", "")), (rewards or {}).get(0, 0.0), True, False, {**info, **about[0]}

    def _new(self, said: str) -> str:
        """Return the new part of an observation. Variants whose name ends with "-raw" return messages; the others
        return a text that repeats all earlier ones.
        """
        player, heard = self.made.get_observation()
        if not isinstance(heard, str):
            return "\n".join(message for author, message, *_kind in heard if author != player)
        new, self._heard = heard.removeprefix(self._heard), heard
        role = self.made.state.role_mapping.get(player, "")
        return new.removeprefix(f"\n[{role}] {said}").strip("\n")

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class SkyRLTask(Game):
    """A task of SkyRL-Gym."""

    def reset(self, sample: Sample, seed: int) -> Any:
        turns = sample.prompt if isinstance(sample.prompt, list) else [Message(role="user", content=sample.prompt)]
        return self.made.init([turn.model_dump() for turn in turns])[0]

    def answer(self, text: str) -> Any:
        said = self.made.step(text)
        observation = "\n".join(turn["content"] for turn in said["observations"] or ())
        numbers = self.made.get_metrics() if said["done"] else {}
        return observation, said["reward"], bool(said["done"]), False, {**(said.get("metadata") or {}), **numbers}


@register("gym")
class Gym(Environment):
    """Games and tasks of packages with Gymnasium's interface: `reset(seed=..., options={"sample": ...})` returns the
    prompt as a text, and `step(text)` returns five values.

    Supported are Gymnasium's own registry, GEM, TextArena's games for one player, and SkyRL-Gym. A task of SkyRL-Gym
    gets the prompt of the sample, its reference as `ground_truth`, and its other columns.
    """

    make: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    """Function that creates an environment, as `module:function`: `gem:make`, `textarena:make`, `skyrl_gym:make`."""
    arguments: dict[str, Any] = {}
    """Arguments of this function, such as `{env_id: "game:GuessTheNumber-v0-easy"}`."""
    process_random: bool = True
    """True if the package draws from the random state of the process (`random`, NumPy) and seeds it, as GEM and
    TextArena do. Each conversation then has its own state, and they are answered one at a time. False: the package does
    not, and conversations do not wait for each other.
    """

    def check_machine(self) -> None:
        package = self.make.partition(":")[0].partition(".")[0]
        if package in PACKAGES:
            Requires(package, f"make: {self.make} needs the package {package}", extra="gym").check()
        elif find_spec(package) is None:
            raise Unavailable(f"make: {self.make} needs the package {package}, which is not installed")

    def one_at_a_time(self) -> bool:
        return self.process_random

    def setup(self, run: Any) -> None:
        super().setup(run)
        self._maker()  # an import that takes long is in nobody's `step_seconds`

    def begin(self, sample: Sample, seed: int) -> Episode:
        random_state: AbstractContextManager[None] = Randomness(seed) if self.process_random else nullcontext()
        try:
            with random_state:
                game = self._game(sample, random_state)
                prompt = game.reset(sample, seed)
            if isinstance(prompt, bytes) or not prompt:
                raise ValueError(f"its first observation is no text but {prompt!r}")
            game.prompt = prompt if isinstance(prompt, str) else [Message(**turn) for turn in prompt]
            return game
        except FAILURES:
            raise
        except Exception as error:
            raise self._unusable(error) from error

    def _maker(self) -> Any:
        try:
            return pkgutil.resolve_name(self.make)
        except Exception as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> UserCodeError:
        what = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return UserCodeError(
            f"{self.make}({what}) cannot be played: {type(error).__name__}: {error}\n    = see `make` and `arguments` of the "
            "environment gym; games for one player can be played, and those whose data lie on this machine"
        )

    def _game(self, sample: Sample, random_state: AbstractContextManager[None]) -> Game:
        maker, arguments = self._maker(), copy.deepcopy(self.arguments)
        if self.make.startswith("skyrl_gym"):
            known = {"max_turns": self.max_turns, "reward_spec": {"ground_truth": sample.reference}, **sample.meta}
            arguments["extras"] = known | arguments.get("extras", {})
        made = maker(**arguments)
        task = hasattr(made, "init") and not hasattr(made, "reset")
        kind = TextArenaGame if hasattr(made, "get_observation") else SkyRLTask if task else Game
        return kind(made, random_state)
