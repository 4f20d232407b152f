"""Environments that run in an OpenEnv server."""

from __future__ import annotations

import json
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import Requires, UserCodeError
from fgrl.kinds import Environment, Episode
from fgrl.registry import register
from fgrl.types import Sample

openenv = lazy.load("openenv.core")
websockets = lazy.load("websockets.exceptions")


class ServedEpisode(Episode):
    """A session of a server."""

    def __init__(self, environment: OpenEnv, seed: int, row: dict[str, Any]) -> None:
        self.environment = environment
        client = openenv.GenericEnvClient(base_url=environment.url, message_timeout_s=environment.step_seconds)
        self.session = client.sync().connect()
        self.prompt = self._asked(self.session.reset, seed=seed, **row)[0]

    def step(self, text: str) -> Any:
        return self._asked(self.session.step, {self.environment.action: text})

    def close(self) -> None:
        self.session.close()

    def _asked(self, ask: Any, *arguments: Any, **row: Any) -> Any:
        try:
            said = ask(*arguments, **row)
        except websockets.ConnectionClosed as error:
            raise ConnectionError(f"the server at {self.environment.url} is gone: {error}") from error
        seen, field = dict(said.observation), self.environment.observation
        about = {**seen.pop("metadata", {}), **(said.metadata or {})}
        text = json.dumps(seen, ensure_ascii=False) if field is None else seen[field]
        truncated = bool(about.get("truncated"))
        reward = 0.0 if said.reward is None else said.reward
        return text, reward, bool(said.done) and not truncated, truncated, about


@register("openenv")
class OpenEnv(Environment):
    """An OpenEnv environment in a server, with one session for each conversation (`max_concurrent_envs`).

    `reset` gets the seed and the other columns of the sample that the server accepts. Its observation is the prompt.
    """

    requires = Requires("openenv", "the environment openenv needs the client of OpenEnv", extra="openenv")

    url: str
    """Address of the server: `http://127.0.0.1:8000`."""
    action: str = "message"
    """Field of an action that contains the text of a turn."""
    observation: str | None = None
    """Field of an observation that the policy reads; null: the whole observation, as JSON."""

    def begin(self, sample: Sample, seed: int) -> Episode:
        row = {name: value for name, value in sample.meta.items() if name != "seed"}
        try:
            return ServedEpisode(self, seed, row)
        except (RuntimeError, KeyError) as error:
            raise UserCodeError(
                f"the environment at {self.url} cannot begin: {type(error).__name__}: {error}\n    = a server has one session "
                "unless its `max_concurrent_envs` says more; `observation` names a field of what it answers"
            ) from error
