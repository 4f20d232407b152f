"""Prompts that consist only of seeds, for environments with prompts of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pydantic import Field

from fgrl.kinds import Expected, Peek, Reader
from fgrl.registry import register
from fgrl.types import Sample


@register("seeds")
class Seeds(Reader):
    """Samples for a range of seeds, each of which starts one conversation with an environment."""

    count: int = Field(ge=1, le=100_000_000)
    """Number of seeds."""
    start: int = Field(0, ge=0, le=2**31 - 1)
    """First seed. A held-out set starts after the seeds of the training set."""
    prompt: str = ""
    """Prompt of each sample; empty: the environment supplies the prompt."""

    def read(self) -> Iterator[Sample]:
        for seed in range(self.start, self.start + self.count):
            yield Sample(id=f"seed:{seed}", prompt=self.prompt, meta={"seed": seed})

    def first(self, count: int, most: int) -> list[Sample]:
        return list(islice(self.read(), count))

    def expects(self, peek: Peek) -> Expected:
        return Expected(self.count)
