"""A server of OpenEnv with a number to guess, as its documentation describes how to write one."""

from __future__ import annotations

from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    guess: str


class Hint(Observation):
    hint: str = ""


class Number(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, limit: int = 100, **_more: Any) -> Hint:
        self.number, self.turns, self.limit = 100 + (seed or 0), 0, limit
        return Hint(hint="Guess a number above 99.")

    def step(self, action: Guess, timeout_s: float | None = None, **_more: Any) -> Hint:  # type: ignore[override]
        self.turns += 1
        guess = int(action.guess)
        if guess == self.number:
            return Hint(hint="right", done=True, reward=1.0)
        late = self.turns == self.limit
        about = {"truncated": True} if late else {}
        return Hint(hint="higher" if guess < self.number else "lower", done=late, reward=-0.25, metadata=about)

    @property
    def state(self) -> State:
        return State(step_count=self.turns)


def app() -> Any:
    return create_fastapi_app(Number, Guess, Hint, max_concurrent_envs=64)
