"""Metrics on answers that an evaluation recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fgrl import registry
from fgrl.errors import DataError, Unavailable
from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Compared
from fgrl.kinds import Metric
from fgrl.results.evaluations import Remeasured
from fgrl.results.measured_by import SAME_NUMBERS


def remeasure(
    metrics: Iterable[Metric], answers: Mapping[str, Sequence[Answer]], baseline: str, run: Any
) -> tuple[dict[str, Remeasured], dict[str, str]]:
    """Measure the answers again with the metrics that need nothing else. Returns those, and why the others were not
    measured again, both by the metric's name in tables.

    A metric may load a packaged encoder, or run code in the sandbox; one that asks a judge or any other endpoint does
    not.
    """
    remeasured: dict[str, Remeasured] = {}
    reasons: dict[str, str] = {}
    for metric in metrics:
        if not isinstance(metric, Compared):
            continue  # its name in tables is not known: the comparison gives a general reason
        if reason := metric.why_not_remeasured() or ("" if answers else "no answers were recorded"):
            reasons[metric.called] = reason
            continue
        try:
            metric.setup(run)
            numbers = metric.by_model(metric.counted(answers), baseline)
        except (DataError, Unavailable) as problem:
            reasons[metric.called] = f"it could not be measured again: {problem}"
            continue
        settings = {name: value for name, value in registry.dump(metric).items() if name not in SAME_NUMBERS}
        options = {"resamples": metric.resamples, "level": metric.level, "seed": metric.seed}
        remeasured[metric.called] = Remeasured(settings, numbers, options)
    return remeasured, reasons
