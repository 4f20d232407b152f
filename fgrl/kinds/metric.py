"""Metrics, which measure answers of several models to the same prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from fgrl.kinds.asker import Asker
from fgrl.registry import kind
from fgrl.types import Request, Sample, Span
from fgrl.types.meanings import Meaning, Purpose, meaning_in


@kind("metric")
class Metric(Asker, ABC):
    """Metric of the answers of several models to the same prompts."""

    purpose: ClassVar[Purpose] = "goal"
    """Purpose of the numbers. `goal`: the aim of the training. `reward`: numbers of a reward, which the training may
    exploit. `symptom`: numbers that show side effects, such as lengths. The report's first screen reads it.
    """
    meanings: ClassVar[Mapping[str, Meaning]] = {}
    """Meanings by number, or by a pattern (`*`). The report draws conclusions only from numbers that have a meaning
    here.
    """

    def meaning(self, number: str) -> Meaning | None:
        """Return the meaning of a number; None if it is not declared."""
        return meaning_in(self.meanings, number)

    def verdict(self, answer: Any) -> tuple[bool | None, list[Span]] | None:
        """Return whether one answer (`fgrl.measuring.answer.Answer`) passes, None if undecided, and the spans that
        break it.

        Return None if the metric does not decide about single answers, or not cheaply enough to do it twice.
        """
        return None

    @abstractmethod
    def measure(self, answers: Mapping[str, Sequence[Any]], *, baseline: str | None = None) -> dict[str, Any]:
        """Return `{metric: {model: {number: estimate}, "differences": {model: {number: estimate}}}}`, JSON-ready.

        `answers` are `fgrl.measuring.answer.Answer`s by model; an estimate is a `fgrl.measuring.statistics.Estimate`
        as a dict; differences are to `baseline`, paired by prompt. Beside the models, "about" may explain the numbers.
        """

    def asks(self, given: Mapping[str, Sequence[Any]], *, baseline: str | None = None) -> list[Request]:
        """Return the requests of `measure(given, baseline=baseline)`, before any question is retried."""
        return []

    def needs(self) -> frozenset[str]:
        """Return the parts of an answer that the metric reads besides its text, from `ANSWER_NEEDS`."""
        return frozenset()

    def check_rewards(self, names: Collection[str]) -> None:
        """Raise ValueError if the metric reads a reward that is not among those of the evaluation."""

    def check_models(self, names: Collection[str], baseline: str) -> None:
        """Raise ValueError if the metric compares with a model that is not among those of the evaluation."""

    def check_answers(self, per_prompt: int) -> None:
        """Raise ValueError if the metric needs more answers to each prompt. per_prompt: number of answers to each
        prompt.
        """

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        """Raise `DataError` if answers to these prompts cannot be measured. Called after `setup`, before drawing."""
