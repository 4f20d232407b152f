"""Common parts of metrics: intervals over prompts, and differences to a baseline."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.base.files import write_json
from fgrl.kinds import Metric
from fgrl.measuring import observations
from fgrl.measuring.answer import Answer
from fgrl.measuring.number_names import METRICS, NOT_MODELS, NumberName, of_model
from fgrl.measuring.observations import Observations, Observed, digest_of_answers
from fgrl.measuring.statistics import Measured, weighted_mean
from fgrl.registry import name_of


class Compared(Metric):
    """Numbers of each model with percentile intervals of a bootstrap over prompts (all answers to a prompt are drawn
    together), and of each model's difference to the baseline, paired by prompt.
    """

    title: str = ""
    """Name in tables; empty: the metric's own. Two metrics of one kind need different ones."""
    resamples: int = Field(2000, ge=100)
    """Draws of the bootstrap."""
    level: float = Field(0.95, gt=0, lt=1)
    """Share of the draws inside the interval."""
    seed: int = 0
    """Of the draws."""
    counts_lost: ClassVar[bool] = False
    """True if it is shown conversations in which an environment failed, too."""

    @property
    def called(self) -> str:
        """Name in tables."""
        return self.title or name_of(self)[1]

    @property
    def slug(self) -> str:
        """Name of its files."""
        return re.sub(r"[^a-z0-9]+", "-", self.called.lower()).strip("-")

    @abstractmethod
    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        """Return the numbers of every model that has some."""

    def counted(self, answers: Mapping[str, Sequence[Answer]]) -> Mapping[str, Sequence[Answer]]:
        """Return the answers that `by_model` and `about` are shown: all. Raises `DataError` for answers that cannot be
        measured.
        """
        return answers

    def scores(self, answers: Sequence[Answer]) -> Mapping[str, Sequence[float | None]]:
        """Return by name the numbers of each single answer that are recorded with it; None: it has none."""
        return {}

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        """Return a description of the computation, where a reader needs it to compare numbers (a signature); empty:
        there is none.
        """
        return ""

    def opponents(self, model: str, models: Collection[str], baseline: str | None) -> Collection[str]:
        """Return the models whose answers a model's numbers depend on."""
        return [other for other in models if other != model]

    def observe(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None, at: str = "") -> Observed:
        """Return the numbers of every model as data. at: the place of this metric among the stage's settings.

        Raises `DataError` when the baseline has no answers.
        """
        if baseline is not None and baseline not in answers:
            raise DataError(f"baseline {baseline!r} has no answers; there are answers of {', '.join(answers)}")
        answers = self.counted(answers)
        numbers = self.by_model(answers, baseline)
        alike = {
            model: {
                f"answers of {other}": digest_of_answers(answers[other])
                for other in self.opponents(model, answers, baseline)
            }
            for model in numbers
        }
        options: dict[str, Any] = {"resamples": self.resamples, "level": self.level, "seed": self.seed}
        return Observed(numbers, options, baseline, self.about(answers), [at] if at else [], alike)

    def measure(self, answers: Mapping[str, Sequence[Answer]], *, baseline: str | None = None) -> dict[str, Any]:
        """See `Metric`. Raises `DataError` when the models answered different prompts."""
        return {self.called: self.observe(answers, baseline).derived()}


class Comparison(Compared):
    """Numbers of each model's answers by themselves, without a look at other models'."""

    @abstractmethod
    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        """Return the numbers of one model's answers. Which ones may depend on the fields, not on the answers."""

    def opponents(self, model: str, models: Collection[str], baseline: str | None) -> Collection[str]:
        return ()

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        return {model: self.numbers(own) for model, own in answers.items()}


def mean(answers: Sequence[Answer], values: Sequence[float | None], weights: Sequence[float] | None = None) -> Measured:
    """Mean over answers (or weighted), resampled by prompt."""
    return weighted_mean(values, [answer.id for answer in answers], weights)


def mean_per_token(answers: Sequence[Answer], sums: Sequence[float | None]) -> Measured:
    """Sum of `sums` / sum of tokens, over the answers that have a value."""
    return mean(answers, per_token(answers, sums), [answer.n_tokens for answer in answers])


def per_token(answers: Sequence[Answer], sums: Sequence[float | None]) -> list[float | None]:
    """Each of `sums` / the answer's tokens; None where there is no sum or no token."""
    return [
        None if total is None or not answer.n_tokens else total / answer.n_tokens
        for answer, total in zip(answers, sums, strict=True)
    ]


def write(
    folder: Path,
    baseline: str | None,
    metrics: Mapping[str, Any],
    meanings: Mapping[str, Any] | None = None,
    observed: Observations | None = None,
) -> dict[str, float]:
    """Write `metrics.json`, and `observations.jsonl` where numbers have some. Return its means by name, for a summary."""
    sha256 = observations.write(folder, observed) if observed is not None and observed.metrics else None
    report = {"baseline": baseline, "metrics": metrics, "meanings": meanings or {}, "observations": sha256}
    write_json(folder / METRICS, report)
    return means_by_name(metrics, baseline)


def means_by_name(measured: Mapping[str, Mapping[str, Any]], baseline: str | None) -> dict[str, float]:
    """`{"similarity.cosine": 0.5}` of what `Metric.measure` returned: what a tracker reads, with the names of `of_model`.
    Differences are left out, and means that are missing.
    """
    models = [model for model in dict.fromkeys(chain.from_iterable(measured.values())) if model not in NOT_MODELS]
    return {
        of_model(NumberName(metric, number), model, models, baseline): float(reported["mean"])
        for metric, by_model in measured.items()
        for model, numbers in by_model.items()
        if model not in NOT_MODELS
        for number, reported in numbers.items()
        if reported.get("mean") is not None
    }
