"""Folders of finished evaluations as data. Only this module reads numbers from `metrics.json` and the observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fgrl.measuring import observations
from fgrl.measuring.number_names import METRICS, NumberName
from fgrl.measuring.observations import Observations
from fgrl.measuring.statistics import Measured
from fgrl.runs.reading import mapping, read_json
from fgrl.runs.results.numbers import Measure, measures
from fgrl.runs.stage import Stage
from fgrl.types import Record
from fgrl.types.meanings import Meaning, Purpose, meaning_in

ANSWERS = "answers.jsonl"
DRAWN_BY = ("sampling", "temperatures")
"""Settings of an evaluation that affect how answers are drawn."""
SAME_NUMBERS = ("resamples", "level", "seed", "title")
"""Fields of a metric that do not change its numbers."""
PLACES, SHORT = ("product", "sha256", "weights"), 12
"""Keys of mappings that stand for a place in an identity, and the number of digits of them that are shown."""


class Declared(Record):
    """Declared meanings of a metric's numbers in `metrics.json`."""

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
    """Contents of `metrics.json`."""
    product: Path | None = None
    """Path of the product."""

    @cached_property
    def observed(self) -> Observations:
        """Return the observations from which its numbers are derived. Raises `DataError` for a damaged file."""
        return (observations.read(self.product) if self.product else None) or Observations({})

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Return the identity whose hash is the key of its stage."""
        record = Stage(self.product.parent).found if self.product else None
        return {} if record is None else record.identity

    def measured(self, name: NumberName, model: str) -> Measured | None:
        """Return the observations of a model's number; None if there are none."""
        own = self.observed.metrics.get(name.metric)
        return None if own is None else own.numbers.get(model, {}).get(name.number)

    def why_not_observed(self, metric: str) -> str:
        """Return the reason why there are no observations of a metric; empty if there are some."""
        if metric in self.observed.metrics:
            return ""
        if "observations" not in self.report:
            return "no observations: it was measured by an earlier version of fgrl"
        return "no observations: the metric returns finished numbers"

    def settings(self, name: NumberName) -> dict[str, Any]:
        """Return settings that a number depends on, as the stage's identity has them: sampling, the metric or the
        settings of the stage that it names, and the reward that it measures. Files, models and products of other stages
        are compared by content.
        """
        settings = mapping(self.identity.get("settings"))
        listed = settings.get("metrics")
        metrics = dict(enumerate(listed if isinstance(listed, list) else ()))
        if (observed := self.observed.metrics.get(name.metric)) is not None:
            depends = observed.depends
        else:  # an earlier version
            called = [place for place, own in metrics.items() if (own.get("title") or own.get("name")) == name.metric]
            depends = [f"metrics.{place}" for place in called]
        data = mapping(self.identity.get("data"))
        found: dict[str, Any] = {key: settings[key] for key in DRAWN_BY if key in settings}
        for path in depends:
            field, _, place = path.partition(".")
            if field == "metrics":
                own = mapping(metrics.get(int(place)))
                found[f"metrics.{name.metric}"] = {key: own[key] for key in own if key not in SAME_NUMBERS}
            else:
                found[path] = mapping(settings.get(field)).get(place) if place else settings.get(field)
            found |= {f"data of {at}": digest for at, digest in data.items() if f"{at}.".startswith(f"{path}.")}
        rewards, asked = mapping(settings.get("rewards")), mapping(found.get(f"metrics.{name.metric}")).get("reward")
        named = [each for each in rewards if each == asked or f"{name.number} ".startswith(f"{each} ")]
        found |= {f"rewards.{reward}": rewards[reward] for reward in sorted(named, key=len)[-1:]}
        return {key: _content(value) for key, value in found.items()}

    def alike(self, name: NumberName, model: str) -> Mapping[str, str]:
        """Return digests of the other inputs of a model's number besides its own answers: the answers of its opponents."""
        own = self.observed.metrics.get(name.metric)
        return {} if own is None else own.alike.get(model, {})

    @property
    def baseline(self) -> str:
        return str(self.report.get("baseline") or "")

    @cached_property
    def measures(self) -> list[Measure]:
        """Return the numbers of `metrics.json`."""
        return measures(self.report)

    def known(self, name: NumberName) -> Known | None:
        """Return the declaration of a number by its metric; None if there is none."""
        try:
            declared = Declared.model_validate(mapping(self.report.get("meanings")).get(name.metric))
        except ValidationError:
            return None
        meaning = meaning_in(declared.numbers, name.number)
        return None if meaning is None else Known(declared.purpose, meaning)

    @cached_property
    def models(self) -> list[str]:
        """Return all models that have numbers in it."""
        return list(dict.fromkeys(number.model for measure in self.measures for number in measure.models))


@dataclass
class RecipeResults:
    """Finished evaluations of one recipe with one seed and one set of settings."""

    recipe: str
    settings: Mapping[str, Any]
    """Every value of the recipe by its dotted path."""
    evaluations: Mapping[str, Evaluation]
    """Evaluations by stage."""

    @property
    def seed(self) -> int:
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else 0


def read_evaluation(out: Path, notes: list[str], what: str = "") -> Evaluation:
    """Return the evaluation in a product folder. Files that cannot be read are noted; `what` ends the note of a missing
    file.
    """
    return Evaluation(observations.refreshed(read_json(out / METRICS, notes, what=what), out), out)


def _content(value: Any) -> Any:
    """Return settings with short texts in place of the mappings that stand for places."""
    if isinstance(value, list):
        return [_content(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1 and (kind := next(iter(value))) in PLACES:
        return f"{kind} {str(value[kind])[:SHORT]}"
    return {key: _content(item) for key, item in value.items()}
