"""Folders of finished evaluations as data: the only place that reads `metrics.json` and `answers.jsonl` for numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import METRICS
from fgrl.evaluation.number_names import NumberName
from fgrl.evaluation.observations import refreshed
from fgrl.evaluation.statistics import Measured
from fgrl.kinds import Meaning, Purpose, meaning_in
from fgrl.results.measured_by import MeasuredBy
from fgrl.results.numbers import Measure, measures
from fgrl.results.reading import mapping, read_json
from fgrl.types import Record

ANSWERS = "answers.jsonl"


@dataclass
class Remeasured:
    """Numbers that a metric computed from the recorded answers, before they are resampled."""

    settings: Any
    """All that can change its numbers, to be compared."""
    numbers: Mapping[str, Mapping[str, Measured]]
    """By model and key of the number."""
    options: Mapping[str, Any]
    """Options of the bootstrap."""


class Declared(Record):
    """The meanings of a metric's numbers in `metrics.json`."""

    purpose: Purpose
    numbers: dict[str, Meaning]


class Known(NamedTuple):
    """Declaration of one number."""

    purpose: Purpose
    meaning: Meaning


@dataclass
class Evaluation:
    """A finished evaluation of one recipe with one seed."""

    report: Mapping[str, Any]
    """`metrics.json`."""
    answers: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    """By model; empty when the stage recorded none, or they were not read."""
    remeasured: Mapping[str, Remeasured] = field(default_factory=dict)
    """By metric: those that were measured again."""
    not_remeasured: Mapping[str, str] = field(default_factory=dict)
    """By metric: why it was not measured again."""
    measured_by: MeasuredBy | None = None
    """Settings of the measurement; None where nothing is compared."""

    @property
    def baseline(self) -> str:
        return str(self.report.get("baseline") or "")

    @cached_property
    def measures(self) -> list[Measure]:
        """The numbers of `metrics.json`."""
        return measures(self.report)

    def known(self, name: NumberName) -> Known | None:
        """Return the declaration of a number by its metric; None where there is none."""
        try:
            declared = Declared.model_validate(mapping(self.report.get("meanings")).get(name.metric))
        except ValidationError:
            return None
        meaning = meaning_in(declared.numbers, name.number)
        return None if meaning is None else Known(declared.purpose, meaning)

    @cached_property
    def models(self) -> list[str]:
        """All models that it has numbers of."""
        return list(dict.fromkeys(number.model for measure in self.measures for number in measure.models))

    @cached_property
    def questions(self) -> dict[str, Any]:
        """Prompts with their references and rubrics, by id."""
        return {
            answer.id: (answer.sample.prompt, answer.references, answer.sample.rubric)
            for answers in self.answers.values()
            for answer in answers
        }


@dataclass
class RecipeResults:
    """The finished evaluations of one recipe with one seed and one set of settings."""

    recipe: str
    settings: Mapping[str, Any]
    """Every value of the recipe by its dotted path."""
    evaluations: Mapping[str, Evaluation]
    """By stage."""


def read_evaluation(out: Path, notes: list[str], what: str = "") -> Evaluation:
    """Return the numbers in a product, without the answers. What cannot be read is noted; `what` ends the note of a
    missing file.
    """
    return Evaluation(refreshed(read_json(out / METRICS, notes, what=what), out))
