"""Environments, with which a policy talks turn by turn."""

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
    """Answer of an environment to a turn: Gymnasium's five values. A plain tuple of them is also accepted."""

    observation: str
    """Text that the policy reads next."""
    reward: float = 0.0
    """Reward of the turn."""
    terminated: bool = False
    """True if the conversation has come to its natural end."""
    truncated: bool = False
    """True if the conversation stops here although more could follow, e.g. at a limit of the environment."""
    info: Mapping[str, Any] = {}
    """Further values. Numbers are averaged into the metrics of the iteration. A text under `error` describes a mistake
    in the turn, and is counted.
    """


FAILURES = (TimeoutError, ConnectionError)
"""Exceptions that mean a failure of the environment itself, not a mistake in the text that it was given."""


class Episode(ABC):
    """One conversation with an environment."""

    prompt: str | Sequence[Message] | None = None
    """Prompt that the policy answers first; None uses the prompt of the sample."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Descriptions of the tools that the policy may call, as JSON schemas."""
    role: str = "user"
    """Role of the observations in the chat template: `user` or `tool`. A template without `tool` gets `user`."""
    special: bool = False
    """True if `step` also reads the special tokens of a turn, such as marks of a call."""
    tokenizer: Any = None
    """Tokenizer of the policy, set from the first turn on."""

    @abstractmethod
    def step(self, text: str) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        """Return the five values of `Stepped` for the policy's text of this turn.

        A consequence of the text, such as a call that cannot be read, is an observation with a reward. An exception
        counts as such a consequence: its message is the observation. Only `TimeoutError` and `ConnectionError` mean
        that the environment itself failed: the whole conversation is then missing, and counted.
        """

    def limited(self) -> float:
        """Return the number that is added to the reward of the last turn if a limit of the run ends the
        conversation.
        """
        return 0.0

    def close(self) -> None:  # noqa: B027
        """Free the resources of the conversation. Called once, after its last turn. The wait for it is no longer than
        for an answer.
        """


@kind("environment")
class Environment(Asker, ABC):
    """Environment with which a policy talks, turn by turn. An environment that asks a model asks with
    `fgrl.feedback.llm.asking.answered`.
    """

    reproducible: ClassVar[bool] = True
    """True if a conversation is a function of its sample, its seed and the texts of the policy. A run that was killed
    then continues in the middle of conversations, and ends with the same bytes.
    """

    max_turns: int = Field(8, ge=1, le=100_000)
    """Maximum number of turns of the policy. A longer conversation is truncated."""
    max_turn_tokens: int | None = Field(None, ge=1, le=10_000_000)
    """Maximum number of tokens that the policy may draw in a turn. Null: the rest of `max_new_tokens`, which limits the
    whole conversation: the tokens of all turns and of the environment's answers.
    """
    max_observation_tokens: int = Field(1024, ge=1, le=10_000_000)
    """Maximum number of tokens of one answer of the environment."""
    long_observation: Literal["cut", "truncate"] = "cut"
    """Treatment of an answer of the environment that is too long: it is cut at its end, with a mark, or the
    conversation is truncated there.
    """
    rewritten_turns: Literal["append", "refuse"] = "append"
    """Treatment of a chat template that writes an earlier turn of the policy differently from how it was drawn, e.g. a
    template that removes thoughts. `append`: the following text is appended to the ids that were drawn, so the policy
    is trained on what it read. `refuse`: an error. A template that changes the content of turns is always an error.
    """
    step_seconds: float = Field(60.0, gt=0, le=1e6)
    """Time limit for an answer of the environment, in seconds. A conversation that exceeds it is missing, and
    counted.
    """
    error_reward: float = Field(0.0, ge=-1e6, le=1e6)
    """Reward of a turn on which the environment raised an exception."""

    def one_at_a_time(self) -> bool:
        """Return True if only one conversation may be answered at a time. By default this is so if its client answers
        one thread at a time.
        """
        client = self.asked_client()
        return client is not None and not client.concurrent

    def asks(self, given: Sequence[tuple[Sample, str]]) -> list[Request]:
        """Return the requests about prompts, each with the text of one turn. This is the maximum for one turn: every
        turn may cause them.
        """
        return []

    def asks_at_most(self, expected: ToDraw) -> list[AtMost]:
        """Return a bound for whole conversations: each turn asks, and its request contains everything that was said
        before it.
        """
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
