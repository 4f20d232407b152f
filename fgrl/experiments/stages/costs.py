"""Costs of other stages, as numbers of a table."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from fgrl.experiments.stages import names
from fgrl.kinds import Run, Stage
from fgrl.measuring import comparison
from fgrl.measuring.statistics import Estimate
from fgrl.registry import register
from fgrl.runs.results.costs import COUNTED, of_calls, of_time, read_costs, relative
from fgrl.types import Product, Ref, Report

CALLS, TIME = "cost", "time"
"""Names of the metrics."""


@register("costs")
class CostsStage(Stage):
    """Tokens and money per sample that stages spent on language models, and seconds per step of trainings, side by
    side.

    They are read from each stage's ledger, record and log. Answers from the cache cost nothing in this stage, and the
    numbers include how many there were. To compare annotators, use stages that asked every question themselves.
    """

    makes = Report
    uses_torch: ClassVar[bool] = False

    of: dict[str, Ref[Product]] = Field(min_length=1)
    """Stages, by the names that tables show."""
    baseline: str | None = None
    """Name of the stage that changes are relative to, as in -0.85 for 85% less; null: the last stage."""
    skip: int = Field(0, ge=0)
    """Number of iterations to leave out at the beginning of a training: the first ones fill caches."""

    @model_validator(mode="after")
    def _names(self) -> CostsStage:
        names.check("stage", self.of, self.baseline)
        return self

    def run(self, run: Run) -> dict[str, Any]:
        baseline = self.baseline or list(self.of)[-1]
        costs = {name: read_costs(run.path(ref).parent, self.skip) for name, ref in self.of.items()}
        by_stage = {
            CALLS: ({name: of_calls(own) for name, own in costs.items() if own.calls or own.questions}, COUNTED),
            TIME: ({name: of_time(own) for name, own in costs.items()}, ("stage", "step")),
        }
        metrics = {
            metric: {
                name: _dumped(own | (relative(own, numbers[baseline], compared) if baseline in numbers else {}))
                for name, own in numbers.items()
            }
            for metric, (numbers, compared) in by_stage.items()
            if numbers
        }
        return {"stages": list(costs), "measured": comparison.write(run.out, baseline, metrics)}


def _dumped(numbers: dict[str, Estimate]) -> dict[str, Any]:
    return {name: number.model_dump() for name, number in numbers.items()}
