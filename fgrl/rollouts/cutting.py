"""Prompts that are longer than their limit and lose their beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.rollouts.text import encode_prompt
from fgrl.types import Sample


@dataclass(frozen=True)
class CutPrompts:
    """Number of prompts that are cut, and the prompt that loses most."""

    count: int
    """Number of prompts that were checked."""
    long: Sequence[bool]
    """True for each prompt that is longer than the limit."""
    limit: int
    longest: int = 0
    """Number of tokens of the longest prompt."""
    id: str = ""
    """Id of the longest prompt."""

    @property
    def cut(self) -> int:
        """Return the number of prompts that are longer than the limit."""
        return sum(self.long)

    @property
    def share(self) -> float:
        return self.cut / self.count if self.count else 0.0

    def summary(self) -> dict[str, Any]:
        """Return entries for the summary of a stage; empty if no prompt is cut."""
        return {"cut prompts": self.cut} if self.cut else {}

    def warning(self) -> str:
        """Return a warning about the lost text, with an example; empty if no prompt is cut."""
        if not self.cut:
            return ""
        return (
            f"warning: {self.cut:,} of {self.count:,} prompts ({self.share:.0%}) are longer than max_prompt_tokens and lose their "
            f"beginning, such as {self.id}: {self.limit} of its {self.longest} tokens are kept. Raise max_prompt_tokens"
        )


def cut_prompts(tokenizer: Any, samples: Sequence[Sample], max_tokens: int) -> CutPrompts:
    """Count the prompts of more than `max_tokens` tokens, as the model gets them. An empty prompt comes from an
    environment.
    """
    lengths = [len(encode_prompt(tokenizer, sample.prompt)) if sample.prompt else 0 for sample in samples]
    if not lengths:
        return CutPrompts(0, [], max_tokens)
    longest = max(range(len(lengths)), key=lengths.__getitem__)
    long = [length > max_tokens for length in lengths]
    return CutPrompts(len(lengths), long, max_tokens, lengths[longest], str(samples[longest].id))
