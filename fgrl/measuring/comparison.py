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
    together), and its differences to the baseline, paired by prompt.
    """

    title: str = ""
    """Name in tables; empty: the metric's own. Two metrics of one kind need different ones."""
    resamples: int = Field(2000, ge=100)
    """Number of bootstrap samples."""
    level: float = Field(0.95, gt=0, lt=1)
    """Confidence level of the intervals."""
    seed: int = 0
    """Seed of the bootstrap samples."""
    counts_lost: ClassVar[bool] = False
    """True if it also gets conversations in which an environment failed."""

    @property
    def called(self) -> str:
        """Return the name in tables."""
        return self.title or name_of(self)[1]

    @property
    def slug(self) -> str:
        """Return the name of its files."""
        return re.sub(r"[^a-z0-9]+", "-", self.called.lower()).strip("-")

    @abstractmethod
    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        """Return the numbers of every model that has some."""

    def counted(self, answers: Mapping[str, Sequence[Answer]]) -> Mapping[str, Sequence[Answer]]:
        """Return the answers that `by_model` and `about` get: all. Raises `DataError` for answers that cannot be
        measured.
        """
        return answers

    def scores(self, answers: Sequence[Answer]) -> Mapping[str, Sequence[float | None]]:
        """Return the numbers of each single answer that are recorded with it, by name; None for an answer without a
        value.
        """
        return {}

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        """Return a description of the computation, if a reader needs it to compare numbers (a signature); empty if
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
        """Return the measurements; see `Metric`. Raises `DataError` if the models answered different prompts."""
        return {self.called: self.observe(answers, baseline).derived()}


class Comparison(Compared):
    """Numbers of each model's answers, independent of the other models' answers."""

    @abstractmethod
    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        """Return the numbers of one model's answers. Their names may depend on the fields, but not on the answers."""

    def opponents(self, model: str, models: Collection[str], baseline: str | None) -> Collection[str]:
        return ()

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        return {model: self.numbers(own) for model, own in answers.items()}


def mean(answers: Sequence[Answer], values: Sequence[float | None], weights: Sequence[float] | None = None) -> Measured:
    """Return the mean over answers (optionally weighted), resampled by prompt."""
    return weighted_mean(values, [answer.id for answer in answers], weights)


def mean_per_token(answers: Sequence[Answer], sums: Sequence[float | None]) -> Measured:
    """Return sum of `sums` / sum of tokens, over the answers that have a value."""
    return mean(answers, per_token(answers, sums), [answer.n_tokens for answer in answers])


def per_token(answers: Sequence[Answer], sums: Sequence[float | None]) -> list[float | None]:
    """Return each of `sums` / the answer's tokens; None if there is no sum or no token."""
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
    """Write `metrics.json`, and `observations.jsonl` if there are observations. Return the means by name, for a
    summary.
    """
    sha256 = observations.write(folder, observed) if observed is not None and observed.metrics else None
    report = {"baseline": baseline, "metrics": metrics, "meanings": meanings or {}, "observations": sha256}
    write_json(folder / METRICS, report)
    return means_by_name(metrics, baseline)


def means_by_name(measured: Mapping[str, Mapping[str, Any]], baseline: str | None) -> dict[str, float]:
    """Return the means in the result of `Metric.measure`, as in `{"similarity.cosine": 0.5}`, with the names of
    `of_model`. Trackers get them. Differences and missing means are left out.
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
