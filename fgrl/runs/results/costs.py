"""Costs of a finished stage: calls, tokens and money from its ledger, seconds from its record and its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError
from fgrl.feedback.llm.ledger import FILE as LEDGER
from fgrl.measuring.statistics import Estimate, student
from fgrl.runs.reading import finite, read_lines
from fgrl.runs.records import Broken
from fgrl.runs.stage import Stage

COUNTED = ("prompt_tokens", "completion_tokens", "usd")
SECONDS = "seconds/"
"""Prefix of the names of metrics in a log that are durations in an iteration."""
PARTS = ("collect", "score", "train")
"""Parts of an iteration, one after the other. Other durations, such as a critic's, are inside one of them."""


@dataclass
class StageCosts:
    """Costs of one stage."""

    seconds: float | None
    """Seconds of the run that finished it."""
    samples: int | None
    """Number of samples that it made; None if it makes none, or if its summary does not say."""
    questions: int = 0
    """Number of questions to language models, before retries; 0 if its summary does not say."""
    cached: int = 0
    """Number of questions answered from the cache. Their cost is in the ledger of the stage that asked first."""
    calls: int = 0
    spent: dict[str, float | None] = field(default_factory=dict)
    """Sums of `COUNTED`; None if the value of a call is unknown."""
    iterations: dict[str, list[float]] = field(default_factory=dict)
    """Seconds in each iteration, by part: `PARTS`, and further durations of the log."""

    @property
    def note(self) -> str | None:
        """Return a remark on the sums, or None."""
        if not self.cached:
            return None
        return f"without {self.cached:,} of {self.questions:,} questions, which the cache answered"


def read_costs(folder: Path, skip: int = 0) -> StageCosts:
    """Return the costs in a stage's folder, without the first `skip` iterations of its log. Raises `DataError` for a
    file that cannot be read.
    """
    notes: list[str] = []
    try:
        record = Stage(folder).record
    except Broken as broken:
        raise DataError(f"{folder}: {broken}") from None
    calls = list(read_lines(folder / LEDGER, notes, folder.name)) if (folder / LEDGER).exists() else []
    log = list(read_lines(folder / "log.jsonl", notes, folder.name)) if (folder / "log.jsonl").exists() else []
    if notes:
        raise DataError(f"{folder}: {' '.join(notes)}")
    summary = record.summary
    costs = StageCosts(
        record.seconds, _count(summary.get("samples")), _count(summary.get("questions")) or 0,
        _count(summary.get("cached")) or 0, len(calls),
    )  # fmt: skip
    for name in COUNTED:
        values = [finite(call.get(name)) for call in calls]
        costs.spent[name] = None if None in values else sum(value for value in values if value is not None)
    timed = [line for line in log if any(str(name).startswith(SECONDS) for name in line)]
    for line in timed[skip:]:
        for name, value in line.items():
            if str(name).startswith(SECONDS) and (seconds := finite(value)) is not None:
                costs.iterations.setdefault(str(name).removeprefix(SECONDS), []).append(seconds)
    return costs


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def of_calls(costs: StageCosts) -> dict[str, Estimate]:
    """Return `samples`, `calls`; `prompt_tokens`, `completion_tokens` and `usd` per sample (Tables 12 and 14 of
    Text2Grad), and their totals as `total_...`. There is one ledger, so there is no interval.
    """
    numbers = {
        "samples": Estimate(mean=costs.samples, note=None if costs.samples is not None else "it makes no samples"),
        "calls": Estimate(mean=costs.calls, note=costs.note),
    }
    for name in COUNTED:
        total = costs.spent[name]
        why = "a call's is not known" if total is None else costs.note
        each = None if total is None or not costs.samples else total / costs.samples
        numbers[name] = Estimate(mean=each, n=costs.samples or 0, note=why if costs.samples else "it makes no samples")
        numbers[f"total_{name}"] = Estimate(mean=total, n=costs.calls, note=why)
    return numbers


def of_time(costs: StageCosts) -> dict[str, Estimate]:
    """Return `stage`: seconds of the whole stage; `step`: seconds per iteration (Table 13 of Text2Grad has minutes),
    the sum of its `PARTS`; and each duration of the log, e.g. `critic`, which is inside `score`. Intervals are
    Student's t over iterations.
    """
    numbers = {"stage": Estimate(mean=costs.seconds, note=None if costs.seconds is not None else "it was not recorded")}
    timed = [costs.iterations[name] for name in PARTS if name in costs.iterations]
    parts = [values for values in timed if len(values) == max(map(len, costs.iterations.values()), default=0)]
    if parts:
        numbers["step"] = student([sum(own) for own in zip(*parts, strict=True)])
    return numbers | {name: student(values) for name, values in costs.iterations.items()}


def relative(numbers: dict[str, Estimate], baseline: dict[str, Estimate], names: Sequence[str]) -> dict[str, Estimate]:
    """Return `NAME_change`: the difference from the baseline as a share of the baseline's value (-0.85: 85% less), if
    both are known.
    """
    changes = {}
    for name in names:
        own, other = (side[name].mean if name in side else None for side in (numbers, baseline))
        if own is not None and other:
            changes[f"{name}_change"] = Estimate(mean=own / other - 1)
    return changes
