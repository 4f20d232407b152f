"""Settings of every evaluation: held-out prompts, the drawing of answers, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.kinds import (
    ANSWER_NEEDS,
    Asker,
    Engine,
    Environment,
    Metric,
    Peek,
    Reader,
    ToDraw,
    check_needs,
    default_engine,
    stated,
)
from fgrl.kinds.functions import checked_measured, own_code, report_failures
from fgrl.kinds.specs import Sampling
from fgrl.measuring import given
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Compared
from fgrl.measuring.number_names import NOT_MODELS
from fgrl.measuring.observations import Observations, Observed
from fgrl.measuring.overlap import OverlapPolicy
from fgrl.measuring.symptoms import SYMPTOMS, symptoms
from fgrl.registry import Settings
from fgrl.types import Sample


class HeldOut(Settings):
    """Prompts that models answer, and metrics of the answers."""

    prompts: Reader
    """Reader of held-out prompts."""
    metrics: list[Metric] = Field(min_length=1)
    """Metrics of the answers."""
    per_prompt: int = Field(1, ge=1, le=100_000)
    """Number of answers of each model to each prompt."""
    turns: int | None = Field(None, ge=1)
    """Maximum number of turns of a conversation: the prompt, then its follow-ups (`meta.follow_ups`); null asks all."""
    engine: Engine = Field(default_factory=default_engine)
    """Engine that draws the answers."""
    environment: Environment | None = None
    """Environment that the models interact with, with the same seed of a conversation for all of them; null: an answer
    is one turn.
    """
    overlap: OverlapPolicy = "warn"
    """Treatment of prompts that a model was trained on, word for word or up to case, white space and final punctuation:
    `warn` reports them, `refuse` stops, `drop` leaves them out.
    """

    @model_validator(mode="after")
    def _known_needs(self) -> HeldOut:
        for number, metric in enumerate(self.metrics):
            check_needs(metric, metric.needs(), ANSWER_NEEDS, field=f"metrics.{number}")
        return self

    @model_validator(mode="after")
    def _titles(self) -> HeldOut:
        titles = [metric.called for metric in self.metrics if isinstance(metric, Compared)]
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise ValueError(f"two metrics are called {twice!r}, and only one would be reported: give one a `title`")
        return self

    @model_validator(mode="after")
    def _enough_answers(self) -> HeldOut:
        if self.draws():
            for metric in self.metrics:
                metric.check_answers(self.per_prompt)
        return self

    @model_validator(mode="after")
    def _converses(self) -> HeldOut:
        if self.environment is not None and self.turns is not None:
            raise ValueError(
                "turns: prompts have no follow-ups where an environment answers; set environment.max_turns"
            )
        if self.environment is not None and not self.draws():
            raise ValueError(
                "environment: all answers are given, so nobody talks to it: name `models`, or leave it out"
            )
        return self

    def draws(self) -> bool:
        """Return True if `per_prompt` answers are drawn, rather than all given."""
        return True

    def asked(self, limit: int | None) -> list[Sample]:
        """Return the prompts, with the follow-ups of the first `turns`; after `setup` of the reader."""
        prompts: Iterable[Sample] = islice(self.prompts.read(), limit)
        if self.environment is not None:
            prompts = [given.shortened(prompt, 1) for prompt in prompts]
        return list(prompts) if self.turns is None else [given.shortened(prompt, self.turns) for prompt in prompts]

    def check_conversations(self, name: str, answers: Sequence[Answer], say: Callable[[str], object]) -> None:
        """Report conversations in which the environment failed. Raises `UserCodeError` if it failed in all of them."""
        failures = [answer.lost for answer in answers if answer.lost is not None]
        if failures and self.environment is not None:
            report_failures(self.environment, failures, len(answers), f"conversations of {name}", say)

    def askers(self) -> list[Asker]:
        """Return the components that may ask a language model: the metrics and the environment."""
        return [*self.metrics, *([] if self.environment is None else [self.environment])]

    def needs(self) -> frozenset[str]:
        """Return the fields of an answer that the metrics read in addition to its text."""
        return frozenset().union(*(metric.needs() for metric in self.metrics))

    def reads_reference(self) -> bool:
        """Return True if metrics compare with a reference model."""
        return bool(self.needs() & {"ref_logp", "kl"})

    def to_draw(self, models: Sequence[str], sampling: Sampling, peek: Peek) -> ToDraw:
        """Return the answers of `models`, before they are drawn."""

        @cache
        def prompts() -> list[Sample]:
            self.prompts.setup(peek)
            return self.asked(peek.limit)

        def size() -> tuple[int, int]:
            expected = stated(self.prompts, "expects", peek)
            if expected is not None and self.turns is not None:
                return expected.after(0, peek.limit).samples, self.turns
            turns = max((1 + len(given.follow_ups(prompt)) for prompt in prompts()), default=1)
            return len(prompts()), turns

        return ToDraw(prompts, size, models, self.per_prompt, sampling)


def measure(
    metrics: Sequence[Metric], answers: Mapping[str, Sequence[Answer]], baseline: str
) -> tuple[dict[str, Any], Observations]:
    """Return the measurements of all metrics by metric, and their observations. A metric that returns finished numbers
    has none. The symptoms of reward hacking are always observed.

    Conversations in which an environment failed are missing (`known`).

    Raises `DataError` if two metrics use the same name.
    """
    measured: dict[str, Any] = {}
    observed: dict[str, Observed] = {}
    every, answers = answers, known(answers)
    for place, metric in enumerate(metrics):
        with own_code(metric, "measure"):
            if isinstance(metric, Compared) and type(metric).measure is Compared.measure:
                shown = every if metric.counts_lost else answers
                own = observed[metric.called] = metric.observe(shown, baseline, f"metrics.{place}")
                value = {metric.called: own.derived()}
            else:
                value = metric.measure(answers, baseline=baseline)
        by_metric = checked_measured(metric, value)
        if twice := measured.keys() & by_metric.keys():
            raise DataError(f"two metrics measure {sorted(twice)[0]!r}: leave one of them out, or give it a `title`")
        measured |= by_metric
    observed[SYMPTOMS] = Observed({model: symptoms(own) for model, own in answers.items()}, {})
    return measured, Observations.of(observed, every)


def known(answers: Mapping[str, Sequence[Answer]]) -> Mapping[str, Sequence[Answer]]:
    """Return the answers without conversations in which the environment failed, and without the prompts to which a model
    has no other answer: models are compared prompt by prompt.
    """
    if all(answer.lost is None for own in answers.values() for answer in own):
        return answers
    left = {model: [answer for answer in own if answer.lost is None] for model, own in answers.items()}
    common = set[str].intersection(*({answer.id for answer in own} for own in left.values()))
    return {model: [answer for answer in own if answer.id in common] for model, own in left.items()}


def meanings(metrics: Sequence[Metric], measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meanings of the measured numbers, by metric: `{"purpose": ..., "numbers": {number: {"words",
    "better", "even"}}}`.

    `measured` is what `measure` returned. Numbers that a metric does not explain are left out. The report reads this.
    """
    return {
        name: {"purpose": metric.purpose, "numbers": _explained(metric, by_model)}
        for metric in metrics
        if isinstance(metric, Compared) and isinstance(by_model := measured.get(name := metric.called), Mapping)
    }


def _explained(metric: Metric, by_model: Mapping[str, Any]) -> dict[str, Any]:
    numbers = dict.fromkeys(number for model, own in by_model.items() if model not in NOT_MODELS for number in own)
    known = {number: meaning for number in numbers if (meaning := metric.meaning(number)) is not None}
    return {number: meaning._asdict() for number, meaning in known.items()}


def judged(metrics: Sequence[Metric], answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers with the verdicts and scores of the metrics that have some for single answers, and the
    passages that violate them. For a conversation, the passages are unknown. A conversation in which the environment
    failed has none of these.
    """
    deciding = [metric for metric in metrics if isinstance(metric, Compared)]
    known = [answer for answer in answers if answer.lost is None]
    scored = {f"{metric.called}.{name}": own for metric in deciding for name, own in metric.scores(known).items()}
    result = {}
    for place, answer in enumerate(known):
        decided = {metric.called: verdict for metric in deciding if (verdict := metric.verdict(answer)) is not None}
        result[id(answer)] = answer.model_copy(
            update={
                "verdicts": {name: passed for name, (passed, _spans) in decided.items()},
                "scores": {name: score for name, own in scored.items() if (score := own[place]) is not None},
                "violations": {name: spans for name, (_, spans) in decided.items() if spans and not answer.turn},
            }
        )
    return [result.get(id(answer), answer) for answer in answers]
