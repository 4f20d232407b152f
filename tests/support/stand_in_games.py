"""Small games with the interfaces of packages that few machines have: Gymnasium's for texts, TextArena's, SkyRL-Gym's."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy

HANG = threading.Event()
"""Set at the end of a test: who waited for it goes on."""
AT_ONCE: list[int] = []
"""How many conversations were answered at the same time, in each turn."""
LATE: list[str] = []
"""What nobody gave up waiting for."""
_inside = 0
_lock = threading.Lock()


class Guess:
    """Gymnasium's interface; seeds the process and draws from it in every turn, as GEM does."""

    def __init__(self, size: int = 100, fault: Any = None, seconds: float = 0.0) -> None:
        self.size, self.fault, self.seconds, self.closed = size, fault, seconds, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        random.seed(seed)
        numpy.random.seed(seed)
        self.told = (options or {}).get("sample", {}).get("id")
        if self.fault == "first":
            return b"\xff", {}
        return f"Sample {self.told}: guess a number below {self.size}", {}

    def step(self, text: str) -> Any:
        global _inside
        with _lock:
            _inside += 1
            AT_ONCE.append(_inside)
        try:
            drawn = random.randrange(self.size), int(numpy.random.randint(self.size))
            time.sleep(self.seconds)
            if text == self.fault == "hang":
                LATE.extend([] if HANG.wait(60) else [text])
            if text == self.fault == "raise":
                raise ValueError("no number")
            if text == self.fault == "bytes":
                return b"\xff\xfe", 0.0, False, False, {}
            return f"{drawn}", float(drawn[0]), text == "end", text == "stop", {"said": len(text)}
        finally:
            with _lock:
                _inside -= 1

    def close(self) -> None:
        self.closed += 1


class GEMLike(Guess):
    """Takes the seed alone."""

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return super().reset(seed=seed)


def make(kind: str = "guess", **arguments: Any) -> Any:
    known = {"guess": Guess, "gem": GEMLike, "arena": Arena, "two": TwoPlayers, "free": Free}
    if kind not in known:
        raise ValueError(f"Environment {kind} not found in registry.")
    return known[kind](**arguments)


class SinglePlayerState:
    role_mapping = {0: "Player", -1: "GAME"}


class FFAMultiPlayerState(SinglePlayerState):
    """Games for several players that do not look at how many there are."""


class Arena:
    """TextArena's interface: a text that repeats everything, or messages."""

    def __init__(self, raw: bool = False) -> None:
        self.raw = raw

    def reset(self, num_players: int, seed: int | None = None) -> None:
        assert num_players == 1
        random.seed(seed)
        self.number = random.randrange(10)
        self.state: Any = SinglePlayerState()
        self.heard = [(-1, "Guess.", 1)]
        self.unread = 0

    def get_observation(self) -> Any:
        new, self.unread = self.heard[self.unread :], len(self.heard)
        if self.raw:
            return 0, new
        return 0, "".join(f"\n[{self.state.role_mapping[who]}] {what}" for who, what, _kind in self.heard)

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        self.heard += [(0, action, 2), (-1, f"Not {action}.", 3)]
        self.over = action == str(self.number)
        return self.over, {"step": 1}

    def close(self) -> Any:
        return {0: 0.75}, {0: {"reason": "Found.", "turn_count": 2, "invalid_move": False}}


class TwoPlayers(Arena):
    def reset(self, num_players: int, seed: int | None = None) -> None:
        assert num_players == 2, f"The number of players has to be 2, received {num_players}"


class Free(Arena):
    def reset(self, num_players: int, seed: int | None = None) -> None:
        super().reset(num_players, seed)
        self.state = FFAMultiPlayerState()


class Task:
    """SkyRL-Gym's interface."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        self.extras, self.turns = extras or {}, 0

    def init(self, prompt: list[dict[str, str]]) -> Any:
        return [*prompt[:-1], {"role": "user", "content": prompt[-1]["content"] + " Think."}], {}

    def step(self, action: str) -> dict[str, Any]:
        self.turns += 1
        right = action == self.extras["reward_spec"]["ground_truth"]
        done = right or self.turns == self.extras["max_turns"]
        again = [{"role": "user", "content": "Again."}, {"role": "user", "content": "Please."}]
        return {
            "observations": [] if done else again,
            "reward": float(right),
            "done": done,
            "metadata": {"right": right},
        }

    def get_metrics(self) -> dict[str, Any]:
        return {"steps": self.turns}

    def close(self) -> None:
        pass


def make_task(env_id: str, **arguments: Any) -> Task:
    return Task(**arguments)
