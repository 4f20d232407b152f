"""Prompts that are nothing but seeds, for environments that bring prompts of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pydantic import Field

from fgrl.kinds import Expected, Peek, Reader
from fgrl.registry import register
from fgrl.types import Sample


@register("seeds")
class Seeds(Reader):
    """A sample for each of several seeds, which a conversation with an environment begins with."""

    count: int = Field(ge=1, le=100_000_000)
    """How many."""
    start: int = Field(0, ge=0, le=2**31 - 1)
    """The first of them: a held-out set begins behind those of the training."""
    prompt: str = ""
    """The prompt of each; empty: the environment begins with one of its own."""

    def read(self) -> Iterator[Sample]:
        for seed in range(self.start, self.start + self.count):
            yield Sample(id=f"seed:{seed}", prompt=self.prompt, meta={"seed": seed})

    def first(self, count: int, most: int) -> list[Sample]:
        return list(islice(self.read(), count))

    def expects(self, peek: Peek) -> Expected:
        return Expected(self.count)
