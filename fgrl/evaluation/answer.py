"""What metrics look at: one answer of one model, and what was computed about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Turn:
    """A later turn of a conversation: what the user asked next, and the answer."""

    question: str
    response: str
    finished: bool | None = None
    n_tokens: int = 0


@dataclass
class Attribution:
    """What a reward says of one criterion of the prompt, and of the tokens that its verdict hangs on."""

    text: str
    """The criterion."""
    kept: bool | None
    """The verdict; None is missing."""
    relevance: list[float] | None = None
    """[T] how much the verdict hangs on each token, 0 to 1; None where it cannot be told."""


@dataclass
class Answer:
    """One answer to one prompt. `T` response tokens, the end-of-sequence token counted; none where the answer was given
    as text rather than drawn."""

    id: str
    """The sample's id. Answers to one prompt share it, and so do the answers of several models: comparisons are paired
    by it, and intervals resample it."""
    prompt: str
    """The prompt; of a chat its last turn."""
    response: str
    """Decoded, without special tokens."""
    tokens: list[str]
    """[T] decoded pieces, for the eyes."""
    offsets: list[tuple[int, int]]
    """[T] characters of `response` that each token covers; the end-of-sequence token covers none, at the end."""
    finished: bool | None
    """Ended by itself, not by the length limit; None = unknown."""
    n_tokens: int
    """T."""
    conversation: list[dict[str, str]] = field(default_factory=list)
    """The whole prompt where it is a chat of several turns (system prompt too): role and content of each."""
    turns: list[Turn] = field(default_factory=list)
    """What was asked after this answer, with the answers. Log-probabilities, KL and rewards are of the first one."""
    references: list[str] = field(default_factory=list)
    """What the data say is right; several are alternatives."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What the sample carried beside its prompt."""
    rubric: list[dict[str, Any]] = field(default_factory=list)
    """The prompt's criteria, each a `fgrl.types.Criterion` as JSON."""
    logp: float | None = None
    """Nats, summed over the answer, under the model itself."""
    ref_logp: float | None = None
    """Nats, summed over the answer, under the reference."""
    kl: float | None = None
    """Nats, summed over the answer: KL(model || reference) of each next-token distribution, or its k1 estimate."""
    token_rewards: dict[str, list[float | None]] = field(default_factory=dict)
    """[T] by name of the reward; None = nothing was said about the token."""
    segments: dict[str, list[int]] = field(default_factory=dict)
    """[T] by name of the reward: index of the segment, -1 outside."""
    criteria: dict[str, list[Attribution]] = field(default_factory=dict)
    """By name of the reward: every criterion that it counts, in the rubric's order. None of a reward that reads no rubric."""

    @property
    def given(self) -> bool:
        """It came as text: there are no tokens, and nobody knows whether it ended by itself."""
        return self.finished is None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; a number that is not finite becomes null."""

        def clean(value: Any) -> Any:
            if isinstance(value, float):
                return value if math.isfinite(value) else None
            if isinstance(value, dict):
                return {key: clean(item) for key, item in value.items()}
            return [clean(item) for item in value] if isinstance(value, list | tuple) else value

        return clean(asdict(self))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Answer:
        """What `to_json` gave."""
        known = {
            "offsets": [(start, end) for start, end in record["offsets"]],
            "turns": [Turn(**turn) for turn in record.get("turns", ())],
            "criteria": {
                name: [Attribution(**one) for one in told] for name, told in record.get("criteria", {}).items()
            },
        }
        return cls(**{**record, **known})
