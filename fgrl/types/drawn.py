"""Input and output of an engine: a prompt and a response as a model reads them.

Engines and models pass both on as a whole. Only `fgrl.rollouts` and `fgrl.rollouts.serving` read their fields. All
other code uses only the length, the `record`, or results of `fgrl.rollouts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fgrl.types.records import Message, Response


@dataclass(frozen=True, order=True)
class Prompt:
    """A prompt as a model reads it. Its length is its number of tokens."""

    token_ids: tuple[int, ...]
    tensors: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Inputs that a processor adds to the ids, by name. Empty for a prompt that is text."""
    turns: Sequence[Message] = field(default=(), compare=False)
    """Turns that the prompt was made of. A plain text is one turn of the user."""
    template: str | None = field(default=None, compare=False)
    """Chat template that rendered the turns; None if the text was encoded without one."""
    lost: int = field(default=0, compare=False)
    """Number of tokens that were cut from its beginning."""

    def __len__(self) -> int:
        return len(self.token_ids)


Finish = Literal["end", "early", "length"]


@dataclass(frozen=True)
class Turn:
    """A turn of the policy in a conversation with an environment."""

    end: int
    """Number of tokens of the response up to the end of the turn."""
    reward: float
    """Reward of the environment for the turn."""
    text: str = ""
    """Text of the policy, without thoughts."""
    observation: str = ""
    """Answer of the environment, as the policy read it."""
    role: str = "user"
    """Role of the answer's message."""
    version: int = 0
    """Version of the weights that the turn was drawn from."""
    error: str | None = None
    """Error that the text of the turn caused in the environment; None if there was none."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Further numbers of the environment, by name."""


def messages_of(turns: Sequence[Turn]) -> list[Message]:
    """Return the messages of a conversation after its prompt. The last answer of the environment is left out, since the
    policy has not read it.
    """
    said = [
        (Message(role="assistant", content=each.text), Message(role=each.role, content=each.observation))
        for each in turns
    ]
    return [message for both in said for message in both][:-1]


@dataclass(frozen=True)
class DrawnResponse:
    """A response that an engine drew. Its length is its number of tokens.

    An engine fills the fields up to `turn`; `fgrl.rollouts` adds the others. It also finds the characters of each token
    (`fgrl.rollouts.offsets`), on request.
    """

    token_ids: list[int]
    """Token ids of the response, with the end-of-sequence token unless the response was cut off or ended early."""
    finish: Finish
    """How the response ended: by an end-of-sequence token, by `DrawRequest.complete_at`, or at `max_new_tokens`. There
    is no other value: if an engine gives up a request, this is an error, never a response.
    """
    version: int = 0
    """Version of the weights that drew the response (`Drawer.take`)."""
    token_logp: list[float] | None = None
    """Log-probabilities of the tokens, nats, at the temperature of sampling, as the engine computed them; None if the
    engine draws from the very model that is trained.
    """
    turn: list[int] | None = None
    """Author of each token: the number of the turn in which the policy drew it, from 0, or -1 for a token of the
    environment. None: the policy drew all tokens in one turn.
    """
    turns: Sequence[Turn] = ()
    """Turns of a conversation with an environment."""
    terminated: bool = True
    """False for a conversation that was truncated although more could have followed."""
    lost: str | None = None
    """Reason why the environment failed, so that the result of the conversation is unknown; None if it did not fail."""
    prompt: Prompt = Prompt(())
    text: str = ""
    """Text of the response, without special tokens and thoughts."""
    thought: str = ""
    """Thoughts of the response (`ModelSpec.thinking`)."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def record(self) -> Response:
        """Return the part of it that a JSON line stores."""
        about = {"thought": self.thought} if self.thought else {}
        return Response(text=self.text, finished=self.finish != "length", meta=about)
