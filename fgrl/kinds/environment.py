"""Environments: what a policy talks to, turn by turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.kinds.asker import Asker
from fgrl.kinds.planning import AtMost, ToDraw
from fgrl.registry import kind, name_of
from fgrl.types import Message, Request, Sample


class Stepped(NamedTuple):
    """What an environment answers to a turn: Gymnasium's five values. A plain tuple of them will do."""

    observation: str
    """What the policy reads next."""
    reward: float = 0.0
    """The reward of the turn."""
    terminated: bool = False
    """True if the conversation has come to its end: nothing would follow."""
    truncated: bool = False
    """True if it stops here although more could follow, as at a limit of the environment."""
    info: Mapping[str, Any] = {}
    """Anything else. Numbers are averaged into the metrics of the iteration. A text under `error` says what was wrong with
    the turn, and is counted.
    """


FAILURES = (TimeoutError, ConnectionError)
"""What says that the environment itself failed, and not the text that it was given."""


class Episode(ABC):
    """One conversation with an environment."""

    prompt: str | Sequence[Message] | None = None
    """What the policy answers first; None: the prompt of the sample."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Descriptions of the tools that the policy may call, as JSON schemas."""
    role: str = "user"
    """Whose turns the observations are in the chat template: `user` or `tool`. A template without the latter gets `user`."""
    special: bool = False
    """True if `step` reads the special tokens of a turn, too, such as marks of a call."""
    tokenizer: Any = None
    """The policy's, from the first turn on."""

    @abstractmethod
    def step(self, text: str) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        """Return the five values of `Stepped` for what the policy wrote in this turn.

        What the text causes, such as a call that cannot be read, is an observation with a reward. An exception is taken
        for such a thing: its message is the observation. `TimeoutError` and `ConnectionError` alone say that the
        environment itself failed: then the whole conversation is missing, and counted.
        """

    def limited(self) -> float:
        """Return what is added to the reward of the last turn where a limit of the run ends the conversation."""
        return 0.0

    def close(self) -> None:  # noqa: B027
        """Free what the conversation needed. Called once, after its last turn; nobody waits longer for it than for an answer."""


@kind("environment")
class Environment(Asker, ABC):
    """What a policy talks to, turn by turn. One that asks a model asks with `fgrl.feedback.llm.asking.answered`."""

    reproducible: ClassVar[bool] = True
    """True if a conversation is a function of its sample, its seed and the texts of the policy. Then a run that is killed
    goes on in the middle of conversations, and ends with the same bytes.
    """

    max_turns: int = Field(8, ge=1, le=100_000)
    """Turns of the policy. A conversation that goes on after them is truncated."""
    max_turn_tokens: int | None = Field(None, ge=1, le=10_000_000)
    """Tokens that the policy may draw in a turn; null: what is left of `max_new_tokens`, which limits the conversation:
    the tokens of all turns, and of what the environment answers.
    """
    max_observation_tokens: int = Field(1024, ge=1, le=10_000_000)
    """Tokens of one answer of the environment."""
    long_observation: Literal["cut", "truncate"] = "cut"
    """An answer of the environment that does not fit is cut at its end, with a mark, or the conversation is truncated
    there.
    """
    rewritten_turns: Literal["append", "refuse"] = "append"
    """What happens where the chat template writes an earlier turn of the policy otherwise than it was drawn, as those that
    remove thoughts. `append`: what follows is appended to the ids that were drawn, so the policy is trained on what it
    read. `refuse`: an error. A template that does not write turns as they are, whatever they contain, is always one.
    """
    step_seconds: float = Field(60.0, gt=0, le=1e6)
    """Time limit of the environment for an answer. A conversation in which it takes longer is missing, and counted."""
    error_reward: float = Field(0.0, ge=-1e6, le=1e6)
    """Reward of a turn on which the environment raised an exception."""

    def one_at_a_time(self) -> bool:
        """Return True if only one conversation may be answered at a time. By default that is so where its client answers one
        thread at a time.
        """
        client = self.asked_client()
        return client is not None and not client.concurrent

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        """Return the requests about prompts, each with the text of one turn, at most: every turn may cause them."""
        return []

    def asks_at_most(self, expected: ToDraw) -> list[AtMost]:
        """Return a bound for whole conversations: each turn asks, and reads what was said and answered before it."""
        most = expected.about_each(lambda sample, text: self.asks([(sample, text)]))
        if not most:
            raise DataError(f"the environment {name_of(self)[1]} has no `asks`, which says what a turn asks its model")
        return [
            replace(
                each, calls=each.calls * self.max_turns,
                missing_tokens=each.missing_tokens + self.max_turns * (each.request.max_tokens or self.max_observation_tokens),
            )
            for each in most
        ]  # fmt: skip

    @abstractmethod
    def begin(self, sample: Sample, seed: int) -> Episode:
        """Return a new conversation. All conversations of a prompt's group have the same seed."""
