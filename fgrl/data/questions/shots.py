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
    """Which examples are shown: the same for every prompt, drawn by a seed, but never the question itself."""

    count: int = Field(3, ge=1)
    """How many examples."""
    split: str | None = None
    """The split they are drawn from; null draws from the data itself, so that one question's answer is shown with
    another question."""
    files: list[Annotated[str, File]] = []
    """Local files they are drawn from, of the kind that `path` names."""
    seed: int = 0
    """Which examples."""
    template: str | None = None
    """The text of one example, with {answer} and the fields of the prompt file; null takes the reader's own."""


@dataclass(frozen=True)
class Shot:
    """An example, ready to be shown."""

    question: str
    """What is asked, so that the example is never shown with the same question."""
    text: str


@dataclass(frozen=True)
class Examples:
    """The examples that were drawn for {examples}."""

    shots: Shots
    drawn: list[Shot]
    where: str
    """What the data is called in messages."""

    def text(self, question: str) -> str:
        """Return the examples to show with one question. Raises `DataError` when there are too few that ask something
        else.
        """
        others = [shot.text for shot in self.drawn if same(shot.question) != same(question)][: self.shots.count]
        if len(others) < self.shots.count:
            raise DataError(
                f"{self.where}: {len(others)} rows can be shown as examples of another question, but `shots.count` is "
                f"{self.shots.count}"
            )
        return "\n\n".join(others)


def draw(shots: Shots, total: int, usable: Callable[[Sequence[int]], Iterable[Shot]]) -> list[Shot]:
    """`shots.count` examples with different questions and one more, which stands in where one is the question itself.

    Args:
        total: the number of rows to draw from.
        usable: the examples of the rows of these numbers, in their order, without those that have no answer.

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
    """Return the text that two questions share when they ask the same: case and spaces do not count."""
    return " ".join(question.casefold().split())
