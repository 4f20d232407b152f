"""What the numbers of an evaluation mean, and which side of each is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fgrl import registry
from fgrl.evaluation.number_names import NumberName
from fgrl.kinds import Better, Meaning, Metric, Purpose, meaning_in
from fgrl.results.reading import finite, mapping


@dataclass(frozen=True)
class Known:
    """What is declared about one number."""

    purpose: Purpose
    meaning: Meaning


class Meanings:
    """The declarations behind a `metrics.json`: those that the evaluation recorded, or else, for files of earlier versions, those
    of the metrics that the stage's settings name, where they are registered."""

    def __init__(self, report: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.recorded = mapping(report.get("meanings"))
        self.components = _components(settings)

    def of(self, name: NumberName) -> Known | None:
        """None: nothing is declared."""
        recorded = mapping(self.recorded.get(name.metric))
        if recorded:
            numbers = mapping(recorded.get("numbers"))
            meaning = meaning_in({number: _meaning(value) for number, value in numbers.items()}, name.number)
            purpose: Purpose | None = next(
                (each for each in get_args(Purpose) if each == recorded.get("purpose")), None
            )
            return None if meaning is None or purpose is None else Known(purpose, meaning)
        component = self.components.get(name.metric) or _registered(name.metric)
        declared = None if component is None else meaning_in(component.meanings, name.number)
        return None if component is None or declared is None else Known(component.purpose, declared)

    def words(self, name: NumberName) -> str:
        """The number in plain words; its name where nothing is declared."""
        known = self.of(name)
        return str(name) if known is None else known.meaning.words


def _meaning(value: Any) -> Meaning:
    """As `Meaning._asdict` wrote it."""
    recorded = mapping(value)
    better = recorded.get("better")
    return Meaning(
        str(recorded.get("words") or "{number}"),
        better if better in get_args(Better) else None,
        finite(recorded.get("even")),
    )


def _components(settings: Mapping[str, Any]) -> dict[str, type[Metric]]:
    """The metrics of a stage's settings by the name that they have in `metrics.json`."""
    result = {}
    listed = settings.get("metrics")
    for node in listed if isinstance(listed, list) else []:
        name = node if isinstance(node, str) else mapping(node).get("name")
        component = _registered(str(name))
        if component is not None:
            result[str(mapping(node).get("title") or name)] = component
    return result


def _registered(name: str) -> type[Metric] | None:
    if "metric" not in registry.kinds() or name not in registry.names("metric"):
        return None
    component = registry.get("metric", name)
    return component if issubclass(component, Metric) else None
