"""Costs and requirements of the stages of a plan, estimated without running them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.base.errors import NotYet
from fgrl.experiments.pipeline import costs
from fgrl.experiments.pipeline.offline import from_cache_only
from fgrl.experiments.pipeline.planning import Plan
from fgrl.experiments.recipe.machines import Card
from fgrl.experiments.stages import counting
from fgrl.feedback.llm.cached import Cached
from fgrl.kinds import Expected, Reader, Stage, stated
from fgrl.registry.problems import dotted
from fgrl.types import Ref


@dataclass
class Peek:
    """Part of a run that a stage may use while it is planned; see `fgrl.kinds.Peek`."""

    cache: Path
    limit: int | None
    finished: Mapping[str, Path]
    """Product folders of the upstream stages that are done."""
    seed: int = 0
    stages: Mapping[str, Stage] = field(default_factory=dict)
    """All stages of the recipe."""
    _expected: dict[str, Expected | None] = field(default_factory=dict)
    """Upper bounds on the output of stages, by name. Each stage is asked only once, since it may have to read its data."""

    def path(self, ref: Ref[Any]) -> Path:
        if ref.stage not in self.finished:
            raise NotYet(ref.stage)
        return self.finished[ref.stage]

    def stage(self, ref: Ref[Any]) -> Stage:
        if ref.stage not in self.stages:
            raise NotYet(ref.stage)
        return self.stages[ref.stage]

    def expects(self, ref: Ref[Any]) -> Expected | None:
        if ref.stage not in self.stages:
            return None
        if ref.stage not in self._expected:
            self._expected[ref.stage] = stated(self.stages[ref.stage], "expects", self)
        return self._expected[ref.stage]

    def say(self, text: str) -> None:
        """Do nothing: a plan prints no progress."""


def estimates(plan: Plan, limit: int | None = None, card: Card | None = None) -> dict[str, dict[str, Any]]:
    """Return the estimate of each stage that is to run, by its name; see `fgrl.kinds.Planning`. With a card, each
    estimate also has its "costs" (`costs.of`).

    `{"after": stage}` stands for what cannot be known before that stage has run.
    """
    by_stage: dict[str, dict[str, Any]] = {}
    stages = {planned.name: planned.stage for planned in plan.stages}
    finished = {planned.name: planned.dir / "out" for planned in plan.stages if planned.cached}
    peek = Peek(plan.runs.cache, limit, finished, plan.recipe.seed, stages)
    for planned in plan.stages:
        if planned.cached:
            continue
        with from_cache_only():
            try:
                estimate = stated(planned.stage, "estimate", peek, {})
            except NotYet as stage:
                estimate = {"after": str(stage)}
            if card is not None and "memory" in estimate:
                estimate |= {"costs": costs.of(estimate, counting.of_stage(planned.stage, peek), card)}
            if estimate := {**estimate, **criteria(planned.stage, peek), **_notes(planned.stage)}:
                by_stage[planned.name] = estimate
    return by_stage


def criteria(stage: Stage, peek: Peek | None = None) -> dict[str, Any]:
    """Return the number of criteria of each kind that the prompts of a stage have, by the path of their reader: {} if
    the stage has none.

    peek: access to the data on this machine, which is then read; without it only data that was read already is counted.
    """
    readers = ((dotted(path), value) for path, value in registry.walk(stage) if isinstance(value, Reader))
    counts = {path: counts for path, reader in readers if (counts := reader.criteria_counts(peek))}
    return {"criteria": counts} if counts else {}


def _notes(stage: Stage) -> dict[str, Any]:
    """Return the notes on the clients of a stage: warnings, and spending that a budget does not stop."""
    clients = [part for _path, part in registry.walk(stage) if isinstance(part, Cached)]
    texts = {
        "warning": [client.warning(date.today()) for client in clients],
        "budget": [client.budget_note() for client in clients],
    }
    return {topic: found for topic, each in texts.items() if (found := list(dict.fromkeys(filter(None, each))))}
