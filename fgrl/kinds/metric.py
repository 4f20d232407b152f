"""Metrics: they measure answers of several models to the same prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, NamedTuple

from fgrl.kinds.asker import Asker
from fgrl.registry import kind
from fgrl.types import Request, Sample, Span

Better = Literal["higher", "lower"]


Purpose = Literal["goal", "reward", "symptom"]


class Meaning(NamedTuple):
    """What a number of a metric tells, for the report."""

    words: str
    """In plain words, as in "share of answers that satisfy the rule". `{number}` stands for the number's name."""
    better: Better | None = None
    """Which side is better; None: neither, as of a length."""
    even: float | None = None
    """Of a number that compares two models by itself: its value when they are equally good, as 0.5 of a win rate."""


def meaning_in(meanings: Mapping[str, Meaning], number: str) -> Meaning | None:
    """The meaning of the number's name, or else of the first pattern (of shell wildcards) that fits it; None where none does."""
    fitting = (meaning for pattern, meaning in meanings.items() if fnmatchcase(number, pattern))
    meaning = meanings.get(number) or next(fitting, None)
    shown = number.replace(":", ": ").replace("_", " ")
    return meaning and meaning._replace(words=meaning.words.replace("{number}", shown))


@kind("metric")
class Metric(Asker, ABC):
    """Measures answers of several models to the same prompts."""

    purpose: ClassVar[Purpose] = "goal"
    """`goal`: what the training is for. `reward`: numbers of a reward, which the training may exploit. `symptom`: numbers that
    show side effects, as lengths. The report's first screen reads it."""
    meanings: ClassVar[Mapping[str, Meaning]] = {}
    """What the numbers mean and which side is better, by number or by a pattern (`*`). The report draws conclusions only from
    numbers that are named here."""

    def meaning(self, number: str) -> Meaning | None:
        """What a number means; None: not declared."""
        return meaning_in(self.meanings, number)

    def verdict(self, answer: Any) -> tuple[bool | None, list[Span]] | None:
        """Whether one answer (`fgrl.evaluation.answer.Answer`) passes, None where that could not be decided, and the spans that
        break it. None: the metric does not decide about single answers, or not cheaply enough to do it twice."""
        return None

    @abstractmethod
    def measure(self, answers: Mapping[str, Sequence[Any]], *, baseline: str | None = None) -> dict[str, Any]:
        """`{metric: {model: {number: estimate}, "differences": {model: {number: estimate}}}}`, JSON-ready.

        `answers` are `fgrl.evaluation.answer.Answer`s by model; an estimate is a `fgrl.evaluation.statistics.Estimate` as a
        dict; differences are to `baseline`, paired by prompt. Beside the models "about" may say, as text, how the numbers
        came about.
        """

    def asks(self, given: Mapping[str, Sequence[Any]], *, baseline: str | None = None) -> list[Request]:
        """The requests of `measure(given, baseline=baseline)`, before any question is retried."""
        return []

    def needs(self) -> frozenset[str]:
        """What it reads of an answer beyond its text: of `ANSWER_NEEDS`."""
        return frozenset()

    def why_not_remeasured(self) -> str:
        """Why recorded answers are not enough to measure again, as in "it asks a judge"; empty when they are."""
        return "it measures in its own way"

    def check_rewards(self, names: Collection[str]) -> None:
        """Raise ValueError when the metric reads a reward that is not among those of the evaluation (`names`)."""

    def check_models(self, names: Collection[str], baseline: str) -> None:
        """Raise ValueError when the metric compares with a model that is not among those of the evaluation (`names`)."""

    def check_answers(self, per_prompt: int) -> None:
        """Raise ValueError when the metric needs more than so many answers to each prompt."""

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` when answers to these prompts cannot be measured. Called after `setup`, before any is drawn."""
