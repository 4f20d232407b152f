"""What an engine is given and what it returns: a prompt and a response as a model reads them.

Engines and models take both whole. Only `fgrl.rollouts` and `fgrl.rollouts.serving` read their fields: everybody else takes the
length of one, its `record`, or what `fgrl.rollouts` makes of it.
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
    """What a processor adds to the ids, by name. Empty for a prompt that is text."""
    turns: Sequence[Message] = field(default=(), compare=False)
    """What it was made of. A plain text is one turn of the user."""
    template: str | None = field(default=None, compare=False)
    """The chat template that rendered the turns; None: the text was encoded as it is."""
    lost: int = field(default=0, compare=False)
    """Tokens that were cut from its beginning."""

    def __len__(self) -> int:
        return len(self.token_ids)


Finish = Literal["end", "early", "length"]


@dataclass(frozen=True)
class Turn:
    """A turn of the policy in a conversation with an environment."""

    end: int
    """Tokens of the response up to the end of the turn."""
    reward: float
    """What the environment gave for it."""
    text: str = ""
    """What the policy wrote, without thoughts."""
    observation: str = ""
    """What the environment answered, as the policy read it."""
    role: str = "user"
    """Of that message."""
    version: int = 0
    """Version of the weights that the turn was drawn from."""
    error: str | None = None
    """What the text of the turn made the environment raise; None: nothing."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Other numbers of the environment, by name."""


def messages_of(turns: Sequence[Turn]) -> list[Message]:
    """Return a conversation behind its prompt. What the environment answered at its end, nobody has read."""
    said = [
        (Message(role="assistant", content=each.text), Message(role=each.role, content=each.observation))
        for each in turns
    ]
    return [message for both in said for message in both][:-1]


@dataclass(frozen=True)
class DrawnResponse:
    """A response that an engine drew. Its length is its number of tokens.

    An engine fills the fields up to `turn`; `fgrl.rollouts` adds the others. It also finds the characters of each token
    (`fgrl.rollouts.offsets`), where somebody asks for them.
    """

    token_ids: list[int]
    """With the end-of-sequence token, unless the response was cut off or ended early."""
    finish: Finish
    """How it ended: by an end-of-sequence token, by `DrawRequest.complete_at`, or at `max_new_tokens`. There is no other way:
    a request that an engine gave up is an error, never a response.
    """
    version: int = 0
    """Version of the weights it was drawn from (`Drawer.take`)."""
    token_logp: list[float] | None = None
    """Log-probabilities of the tokens, nats, at the temperature of sampling, as the engine computed them; None where
    the engine draws from the very model that is trained.
    """
    turn: list[int] | None = None
    """Author of each token: the number of the turn in which the policy drew it, from 0; -1: an environment wrote it.
    None: the policy drew all of them in one turn.
    """
    turns: Sequence[Turn] = ()
    """Of a conversation with an environment."""
    terminated: bool = True
    """False for a conversation that was truncated: more could have followed."""
    lost: str | None = None
    """Why the environment failed, so that nothing is known about the conversation; None: it did not."""
    prompt: Prompt = Prompt(())
    text: str = ""
    """Without special tokens and thoughts."""
    thought: str = ""
    """What it thinks besides (`ModelSpec.thinking`)."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def record(self) -> Response:
        """Return what a JSON line stores of it."""
        about = {"thought": self.thought} if self.thought else {}
        return Response(text=self.text, finished=self.finish != "length", meta=about)
