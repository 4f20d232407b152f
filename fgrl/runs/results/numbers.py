"""Numbers of an evaluation's `metrics.json`, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fgrl.measuring.number_names import NOT_MODELS, NumberName
from fgrl.measuring.statistics import Estimate
from fgrl.runs.reading import finite, mapping
from fgrl.runs.results.estimates import Axis, ShownEstimate, axis_of, common_decimals, known_values


@dataclass
class ModelNumber:
    """Number of one model."""

    model: str
    value: ShownEstimate
    difference: ShownEstimate | None
    """Difference to the baseline, paired by prompt."""


@dataclass
class Measure:
    """One number of one metric, for every model."""

    name: NumberName
    models: list[ModelNumber] = field(default_factory=list)
    """Numbers of the models, the baseline first."""
    about: str = ""
    """Description of the computation in the metric's own words (a signature)."""
    zero: float | None = None
    """Position of zero on the axis of the differences (percent); None without differences."""

    def __getitem__(self, model: str) -> ModelNumber | None:
        return next((number for number in self.models if number.model == model), None)


def measures(report: Mapping[str, Any]) -> list[Measure]:
    """Return every number in an evaluation's `metrics.json`. Other values are left out."""
    baseline = str(report.get("baseline") or "")
    found: dict[NumberName, list[tuple[str, Estimate, Estimate | None]]] = {}
    abouts: dict[str, str] = {}
    for metric, by_model in _items(report.get("metrics")):
        differences = dict(_items(mapping(by_model).get("differences")))
        abouts[metric] = about if isinstance(about := mapping(by_model).get("about"), str) else ""
        models = [(model, numbers) for model, numbers in _items(by_model) if model not in NOT_MODELS]
        models.sort(key=lambda item: item[0] != baseline)
        for model, numbers in models:
            named = {"": numbers} if read_estimate(numbers) else mapping(numbers)
            for number, value in named.items():
                estimate = read_estimate(value)
                if estimate is None:
                    continue
                changes = mapping(differences.get(model))
                change = changes if "mean" in changes else changes.get(str(number))
                found.setdefault(NumberName(metric, str(number)), []).append((model, estimate, read_estimate(change)))
    return [_measure(name, numbers, abouts[name.metric]) for name, numbers in found.items()]


def _measure(name: NumberName, numbers: Sequence[tuple[str, Estimate, Estimate | None]], about: str) -> Measure:
    """Return a measure with the same decimals for all values on one axis, and for all differences on another axis."""
    values, changes = [value for _, value, _ in numbers], [change for _, _, change in numbers if change is not None]
    decimals, zero = common_decimals([*values, *changes]), None
    value_axis, change_axis = (axis_of(known) if (known := known_values(values)) else Axis(0.0, 0.0)), Axis(0.0, 0.0)
    if known := known_values(changes):
        change_axis = axis_of([*known, 0.0])
        zero = change_axis.percent(0.0)
    models = [
        ModelNumber(
            model,
            ShownEstimate.of(value, decimals, value_axis),
            None if change is None else ShownEstimate.of(change, decimals, change_axis),
        )
        for model, value, change in numbers
    ]
    return Measure(name, models, about, zero)


def headlines(
    measures: Sequence[Measure], baseline: str, at_most: int = 4
) -> list[tuple[Measure, ModelNumber, ModelNumber]]:
    """Return the first number of each metric that both the baseline and another model have, before and after training.
    After the first of these, only numbers that differ are included.
    """
    result: dict[str, tuple[Measure, ModelNumber, ModelNumber]] = {}
    for measure in measures:
        after = next((number for number in measure.models if number.model != baseline), None)
        if (before := measure[baseline]) and after and not (result and before.value == after.value):
            result.setdefault(measure.name.metric, (measure, before, after))
    return list(result.values())[:at_most]


def read_estimate(value: Any) -> Estimate | None:
    """Return an estimate from `{"mean", "low", "high", "n", "note", ...}` or a bare number; None for other values."""
    if not isinstance(value, dict):
        single = finite(value)
        return None if single is None else Estimate(mean=single)
    if "mean" not in value:
        return None
    counts = {key: value.get(key) for key in ("n", "groups", "positives")}
    return Estimate(
        mean=finite(value["mean"]),
        low=finite(value.get("low")),
        high=finite(value.get("high")),
        note=str(value.get("note") or "") or None,
        **{key: count for key, count in counts.items() if isinstance(count, int) and not isinstance(count, bool)},
    )


def _items(value: Any) -> list[tuple[str, Any]]:
    return [(str(key), item) for key, item in mapping(value).items()]
