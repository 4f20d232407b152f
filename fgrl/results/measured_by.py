"""Settings that a number of an evaluation depends on, apart from the models that are measured: only equal ones are
subtracted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fgrl.evaluation.number_names import NumberName

ANSWERS = ("sampling", "temperatures")
"""Fields of an evaluation that decide how answers are drawn."""
SAME_NUMBERS = ("resamples", "level", "seed", "title")
"""Fields of a metric that do not change its numbers."""


@dataclass(frozen=True)
class MeasuredBy:
    """Settings with which an evaluation measures."""

    stage: str
    stages: Mapping[str, Any]
    """Settings of the evaluation and of all stages before it, by name, as plain data."""
    complete: bool = True
    """False where defaults are not known, because this version cannot build the recipe."""

    def settings(self, number: NumberName) -> dict[str, Any]:
        """Return settings that a number depends on, as a recipe has them: sampling, the metric, the reward that it
        measures, and the stages that metric and reward are made by.
        """
        evaluation = self.stages.get(self.stage) or {}
        own: dict[str, Any] = {key: evaluation[key] for key in ANSWERS if key in evaluation}
        own["metrics"] = {
            _called(metric): {key: value for key, value in metric.items() if key not in SAME_NUMBERS}
            for metric in evaluation.get("metrics") or ()
            if isinstance(metric, Mapping) and _called(metric) == number.metric
        }
        rewards = evaluation.get("rewards") or {}
        named = [name for name in rewards if f"{number.number} ".startswith(f"{name} ")]
        own["rewards"] = {name: rewards[name] for name in sorted(named, key=len)[-1:]}
        return {self.stage: own, **self._made_by([own["metrics"], own["rewards"]])}

    def _made_by(self, settings: Any) -> dict[str, Any]:
        """Return the stages whose products these settings name, and those before them."""
        found: dict[str, Any] = {}
        named = _references(settings)
        while named:
            stage = named.pop()
            if stage in self.stages and stage not in found:
                found[stage] = self.stages[stage]
                named += _references(self.stages[stage])
        return found


def _called(metric: Mapping[str, Any]) -> str:
    return str(metric.get("title") or metric.get("name") or "")


def _references(settings: Any) -> list[str]:
    return re.findall(r"\$\{out:([^}.]+)", json.dumps(settings, default=str))
