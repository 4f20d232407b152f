"""Averages over benchmarks, as papers print them in the last column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from fgrl.base import lazy
from fgrl.base.errors import DataError, UsageError
from fgrl.kinds import Run, Stage
from fgrl.measuring import comparison
from fgrl.measuring.number_names import StageNumber, pick
from fgrl.measuring.observations import refreshed
from fgrl.measuring.statistics import combined
from fgrl.registry import Settings, register
from fgrl.types import Ref, Report

if TYPE_CHECKING:
    from fgrl.runs.results.numbers import ModelNumber
results = lazy.load("fgrl.runs.results.numbers")

NUMBER = "average"
"""Name of the number under the title of its average."""
Weighted = tuple[str, float, "ModelNumber"]
"""The stage of a number, its weight in the average, and the number of one model."""


class Part(Settings):
    """Part of an average: numbers of one evaluation."""

    of: Ref[Report]
    """Reference to the evaluation: `${out:stage}`."""
    numbers: list[str] = Field(min_length=1)
    """Names of the numbers: METRIC.NUMBER, as `fgrl table` prints them."""
    scale: float = Field(1.0, gt=0)
    """Factor that brings the numbers to the scale of the others: 0.01 for BLEU, which goes up to 100, beside shares,
    which go up to 1.
    """


@register("average")
class AverageStage(Stage):
    """Means of numbers of finished evaluations, for every model that all of them measured.

    All numbers have the same weight. Intervals are computed from the intervals of the numbers: numbers of one
    evaluation are assumed to vary together, which makes the interval rather too wide; numbers of different evaluations
    are assumed to be independent.
    """

    makes = Report
    uses_torch: ClassVar[bool] = False

    averages: dict[str, list[Part]] = Field(min_length=1)
    """Parts of each average, by the name that tables show."""

    def run(self, run: Run) -> dict[str, Any]:
        reports = {stage: refreshed(Report(path).read(), path) for stage, path in self._paths(run).items()}
        baselines = {str(report.get("baseline") or "") for report in reports.values()}
        metrics = {title: self._average(title, parts, reports) for title, parts in self.averages.items()}
        baseline = baselines.pop() if len(baselines) == 1 else None
        return {"averages": list(metrics), "measured": comparison.write(run.out, baseline, metrics)}

    def _paths(self, run: Run) -> dict[str, Path]:
        """Return the folder of every evaluation that has a part in an average."""
        return {part.of.stage: run.path(part.of) for parts in self.averages.values() for part in parts}

    def _average(self, title: str, parts: list[Part], reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the numbers of every model in the form of a metric, with differences if all evaluations have the same
        baseline.
        """
        count = sum(len(part.numbers) for part in parts)
        by_model: dict[str, list[Weighted]] = {}
        names: list[str] = []
        for part in parts:
            stage = part.of.stage
            known = {StageNumber(stage, measure.name): measure for measure in results.measures(reports[stage])}
            for text in part.numbers:
                try:
                    number = pick(list(known), text)
                except UsageError as problem:
                    raise DataError(f"averages.{title}: {stage}: {problem}") from None
                names.append(str(number))
                for own in known[number].models:
                    by_model.setdefault(own.model, []).append((stage, part.scale / count, own))
        complete = {model: own for model, own in by_model.items() if len(own) == count}
        if not complete:
            raise DataError(f"averages.{title}: no model has all of its numbers: {', '.join(names)}")
        means: dict[str, Any] = {
            model: {NUMBER: combined([(stage, weight, n.value) for stage, weight, n in own]).model_dump()}
            for model, own in complete.items()
        }
        comparable = len({reports[part.of.stage].get("baseline") for part in parts}) == 1
        differences = {
            model: {NUMBER: combined(changes).model_dump()}
            for model, own in complete.items()
            if comparable
            and (changes := [(stage, weight, n.difference) for stage, weight, n in own if n.difference is not None])
            and len(changes) == count
        }
        return means | {"differences": differences, "about": f"mean of {', '.join(names)}"}
