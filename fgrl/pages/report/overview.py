"""First screen of the page: the trainings and the machine, the main curve, and one pair of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.base.visible import quantity
from fgrl.measuring.answer import Answer
from fgrl.runs.reading import mapping
from fgrl.runs.results.conclusions import Example
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage


@dataclass
class Training:
    """Summary of a training."""

    stage: str
    words: str
    """Text with its algorithm, model and steps."""


def trainings(run: Run) -> list[Training]:
    """Return the stages that have an algorithm."""
    return [Training(stage.name, _words(stage)) for stage in run.stages.values() if stage.settings.get("algorithm")]


def surroundings(run: Run) -> list[str]:
    """Return the seed and the machine."""
    seed, cores = run.settings.get("seed", run.environment.get("seed")), run.environment.get("cores")
    machine = [run.environment.get("platform"), quantity(cores, "core") if isinstance(cores, int) else None]
    parts = [f"seed {seed}" if isinstance(seed, int) else "", ", ".join(str(part) for part in machine if part)]
    return [part for part in parts if part]


def pair(answers: Sequence[Answer], baseline: str) -> Example | None:
    """Return the first prompt with the answers before and after training; None if no prompt has both."""
    before = {answer.id: answer for answer in reversed(answers) if answer.model == baseline}
    after = next((answer for answer in answers if answer.model != baseline and answer.id in before), None)
    return None if after is None else Example.of(before[after.id], after)


def _words(stage: Stage) -> str:
    algorithm, steps = _name(stage.settings["algorithm"], "name"), ""
    for unit in ("step", "iteration"):
        if isinstance(count := stage.summary.get(f"{unit}s"), int):
            steps = f", {quantity(count, unit)}"
    if not steps and (logged := [step for series in stage.series for step in series.steps]):
        steps = f", {quantity(int(max(logged)) + 1, 'step')} so far"
    model = _name(stage.settings.get("model"), "base")
    return f"{algorithm}{f' on {model}' if model else ''}{steps}"


def _name(value: Any, key: str) -> str:
    """Return the name in a setting, which is the setting itself or an entry of a mapping."""
    found = str(mapping(value).get(key) or "") if isinstance(value, dict) else str(value or "")
    return f"the model of {found[6:-1]}" if found.startswith("${out:") else found
