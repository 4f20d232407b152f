"""The points of a sweep as recipes with overrides, and the stages that they share."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from fgrl.base.errors import UsageError
from fgrl.base.sanitizing import hide_in
from fgrl.experiments import recipe as recipes
from fgrl.experiments.pipeline.estimating import estimates
from fgrl.experiments.pipeline.planning import Plan, plan
from fgrl.experiments.recipe import Recipe
from fgrl.experiments.recipe.files import OTHER_RECIPE, OTHER_ROW
from fgrl.experiments.recipe.sweeps import SweepFile, override
from fgrl.experiments.stages.evaluate import EvaluateStage
from fgrl.measuring.number_names import of_model
from fgrl.registry import Problems, unknown
from fgrl.runs.folders import Runs
from fgrl.runs.results.sweep_records import SWEEPS, PointRecord

TOKENS = ("prompt tokens", "completion tokens")


@dataclass(frozen=True)
class Sweep:
    """A sweep, and how each of its points is run."""

    file: SweepFile
    recipe: str
    """Address of the recipe that the command names."""
    overrides: tuple[str, ...] = ()
    """What the command sets for every point."""
    path: str = ""
    """The sweep file; empty for a grid of `fgrl run`."""
    machines: str | None = None
    limit: int | None = None
    wandb: str | None = None
    mlflow: str | None = None
    tensorboard: str | None = None
    runs: Path = Path("runs")
    seed: int = 0

    @property
    def name(self) -> str:
        given = re.sub(r"[^\w.-]+", "-", self.file.name or "").strip(".-")
        return given or recipes.recipe_name(self.path or self.recipe)

    @property
    def id(self) -> str:
        """Name of its folder: equal for equal points, however many of them run."""
        whole = [self.file.definition(), self.recipe, self.overrides, self.limit, self.seed]
        return f"{self.name}-{hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:8]}"

    @property
    def folder(self) -> Path:
        return self.runs / SWEEPS / self.id

    def refuse_secrets(self) -> None:
        """Raise `UsageError` for a secret, as far as it is known by now: what has one cannot be written and read again."""
        values = {name: [each.value, *(each.values or [])] for name, each in self.file.parameters.items()}
        for name, given in {**values, "command": list(self.overrides), "description": self.file.description}.items():
            if hide_in({name: given}) != {name: given}:
                raise UsageError(
                    f"{name}: looks like a secret, and a sweep is copied into records and pages: put it into an environment "
                    "variable and the variable's name into the recipe (for example api_key_env: MY_KEY)"
                )

    def words(self, point: PointRecord) -> list[str]:
        """Return the overrides of a point."""
        return [*self.overrides, *(override(name, value) for name, value in point.parameters.items())]

    def command(self, point: PointRecord) -> list[str]:
        """Return the command that runs a point alone."""
        words = ["fgrl", "run", self.recipe, *self.words(point)]
        words += [] if self.runs == Path("runs") else ["--runs", str(self.runs)]
        words += [] if self.limit is None else ["--limit", str(self.limit)]
        return words + ([] if self.machines is None else ["--machines", self.machines])

    def load(self, point: PointRecord) -> Recipe:
        """Return the recipe of a point. Raises `Problems`."""
        return load_point(self.recipe, self.words(point), self.machines)

    def plan(self, point: PointRecord) -> Plan:
        """Return the plan of a point. Raises `Problems`."""
        return plan(self.load(point), self.runs, limit=self.limit)


def load_point(address: str, overrides: Sequence[str], machines: str | None) -> Recipe:
    """Return a recipe with overrides, on the machines of a file. Raises `Problems`."""
    loaded = recipes.load(address, overrides)
    if machines is not None:
        loaded = recipes.load(address, [*recipes.placed(Path(machines), loaded), *overrides])
    return loaded


def check_metric(sweep: Sweep) -> None:
    """Raise `UsageError` for a number that no point can have, as far as the recipe tells: what an evaluation measures is
    known from its metrics, what other stages report and log is not. Points of other recipes and rows are not looked at.
    """
    metric = sweep.file.metric
    if metric is None or {OTHER_RECIPE, OTHER_ROW} & sweep.file.parameters.keys():
        return
    try:
        stages = load_point(sweep.recipe, sweep.overrides, sweep.machines).stages
    except Problems:  # it may lack what the points set; each of them says what is wrong
        return
    name, _, number = metric.name.partition("/")
    if name not in stages:
        raise UsageError(f"metric.name: {unknown('stage', name, list(stages))}")
    stage = stages[name]
    if not isinstance(stage, EvaluateStage) or number == "prompts" or ": " in number:
        return  # what it counts, of judges too
    if sweep.file.early_terminate is not None:
        raise UsageError(
            f"metric.name: early_terminate needs a number that is logged while training (STAGE/NUMBER, best one of `evaluate` of a "
            f"training), and {metric.name} is measured at the end"
        )
    known = [f"{name}/{of_model(each, model, stage.names, stage.baseline)}"
             for model in stage.names for each in stage.number_names()]  # fmt: skip
    if not any(fnmatchcase(metric.name, each) for each in known):
        shown = [each for each in known if "*" not in each]
        raise UsageError(f"metric.name: {unknown('number', metric.name, shown)}")


class Needed(NamedTuple):
    """What is kept of a planned stage: thousands of whole plans would fill the memory."""

    name: str
    key: str
    upstream: Mapping[str, str]


@dataclass
class Needs:
    """The stages that the points need."""

    runs: Runs
    plans: dict[int, list[Needed]] = field(default_factory=dict)
    """By the number of the point."""
    done: set[str] = field(default_factory=set)
    """Keys of the stages that are done, as far as is known here."""

    def add(self, number: int, planned: Plan) -> None:
        self.plans[number] = [Needed(stage.name, stage.key, stage.upstream) for stage in planned.stages]
        self.done |= {stage.key for stage in planned.stages if stage.cached}

    def look_again(self, number: int) -> None:
        """See which stages of a point are done by now."""
        for stage in self.plans[number]:
            found = self.runs.find(stage.key)
            if found is not None and found.is_done(stage.key):
                self.done.add(stage.key)

    def missing(self, number: int) -> dict[str, str]:
        """Return the keys of a point's stages that are not done, by name, in order of execution."""
        return {stage.name: stage.key for stage in self.plans[number] if stage.key not in self.done}


def shared_groups(
    needs: Needs, numbers: Sequence[int], *, also_done: bool = False
) -> Iterator[tuple[dict[str, str], list[int]]]:
    """Yield (stages that several of these points share, by name with their keys; those points), in an order in which they
    can run. The first of the points knows the stages by these names. also_done: those that are done already, too.
    """
    plans = {number: {stage.name: stage.key for stage in needs.plans[number]} for number in numbers}
    missing = plans if also_done else {number: needs.missing(number) for number in numbers}
    users: dict[str, list[int]] = {}
    for number, stages in missing.items():
        for key in stages.values():
            users.setdefault(key, []).append(number)
    for number, stages in missing.items():
        groups: dict[tuple[int, ...], dict[str, str]] = {}
        for name, key in stages.items():
            if len(users[key]) > 1 and users[key][0] == number:
                groups.setdefault(tuple(users[key]), {})[name] = key
        yield from ((stages, list(sharing)) for sharing, stages in groups.items())


@dataclass
class Cost:
    """What the missing stages of all points ask of language models: each stage counts once."""

    limit: int | None
    seen: set[str] = field(default_factory=set)
    total: dict[str, float] = field(default_factory=lambda: {"calls": 0, **dict.fromkeys(TOKENS, 0), "usd": 0.0})
    unknown: list[str] = field(default_factory=list)

    def add(self, planned: Plan) -> None:
        new = {stage.name: stage.key for stage in planned.stages if not stage.cached and stage.key not in self.seen}
        self.seen |= set(new.values())
        for name, estimate in estimates(planned, self.limit).items() if new else ():
            calls = estimate.get("calls")
            if name not in new or not isinstance(calls, Mapping):
                continue
            for what in self.total:
                if (value := calls.get(what)) is not None:
                    self.total[what] += value
                elif what not in TOKENS:
                    self.unknown.append(f"{name} ({new[name]})")

    def as_json(self) -> dict[str, Any]:
        return {"stages": len(self.seen), **self.total, "unknown": list(dict.fromkeys(self.unknown))}


SBATCH = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array={array}
#SBATCH --cpus-per-task={threads}
#SBATCH --output={logs}/slurm-%A-%a.log
# devices, memory and time are those of your cluster: #SBATCH --gpus=1 --mem=64G --time=12:00:00
cd {here}
export OMP_NUM_THREADS={threads}
{command} --{what} "$SLURM_ARRAY_TASK_ID"
"""


def sbatch(sweep: Sweep, *, what: str, count: int, threads: int, options: Sequence[str]) -> str:
    """Return an array job that runs the points of a sweep (what: "point") or the stages that they share ("shared")."""
    words = [sys.executable, "-P", "-m", "fgrl", "sweep", sweep.path, *options]
    return SBATCH.format(
        name=f"{sweep.id}-{what}",
        array=f"1-{count}",
        threads=threads,
        logs=shlex.quote(str(sweep.folder.absolute())),
        here=shlex.quote(str(Path.cwd())),
        command=shlex.join(words),
        what=what,
    )
