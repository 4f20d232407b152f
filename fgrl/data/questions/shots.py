"""Worked examples in a prompt (few-shot)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.registry import File, Settings


class Shots(Settings):
    """Choice of the examples: drawn by a seed, the same ones for every prompt, but never the question itself."""

    count: int = Field(3, ge=1)
    """Number of examples."""
    split: str | None = None
    """Split that the examples are drawn from; null draws from the data itself, so that the answer of one question is
    shown with another question.
    """
    files: list[Annotated[str, File]] = []
    """Local files that the examples are drawn from, of the kind that `path` names."""
    seed: int = 0
    """Random seed of the draw."""
    template: str | None = None
    """Template of one example, with {answer} and the fields of the prompt file; null takes the reader's own."""


@dataclass(frozen=True)
class Shot:
    """An example as a prompt shows it."""

    question: str
    """Question of the example, so that it is never shown with the same question."""
    text: str


@dataclass(frozen=True)
class Examples:
    """The examples that were drawn for {examples}."""

    shots: Shots
    drawn: list[Shot]
    where: str
    """Name of the data in messages."""

    def text(self, question: str) -> str:
        """Return the examples to show with one question. Raises `DataError` if too few examples ask something else."""
        others = [shot.text for shot in self.drawn if same(shot.question) != same(question)][: self.shots.count]
        if len(others) < self.shots.count:
            raise DataError(
                f"{self.where}: {len(others)} rows can be shown as examples of another question, but `shots.count` is "
                f"{self.shots.count}"
            )
        return "\n\n".join(others)


def draw(shots: Shots, total: int, usable: Callable[[Sequence[int]], Iterable[Shot]]) -> list[Shot]:
    """Return `shots.count` examples with different questions and one spare, which replaces an example that is the
    question itself.

    Args:
        total: the number of rows to draw from.
        usable: the examples of the rows of these numbers, in their order, without rows that have no answer.

    """
    numbers = list(range(total))
    random.Random(shots.seed).shuffle(numbers)
    by_question: dict[str, Shot] = {}
    for shot in usable(numbers):
        by_question.setdefault(same(shot.question), shot)
        if len(by_question) == shots.count + 1:
            break
    return list(by_question.values())


def same(question: str) -> str:
    """Return a text that is equal for two questions that ask the same: case and spaces are ignored."""
    return " ".join(question.casefold().split())
