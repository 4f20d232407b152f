"""Points of a sweep as recipes with overrides, and as commands."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fgrl.base import native
from fgrl.base.errors import UsageError
from fgrl.base.sanitizing import hide_in
from fgrl.experiments import recipe as recipes
from fgrl.experiments.pipeline.planning import Plan, SweptPoint, plan
from fgrl.experiments.recipe import Recipe
from fgrl.experiments.recipe.files import OTHER_RECIPE, OTHER_ROW
from fgrl.experiments.recipe.sweeps import SweepFile, override
from fgrl.experiments.stages.evaluate import EvaluateStage
from fgrl.measuring.number_names import of_model
from fgrl.registry import Problems, unknown
from fgrl.runs.results.sweep_records import SWEEPS, PointRecord

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
DEVICES = "CUDA_VISIBLE_DEVICES"
WANDB = "FGRL_WANDB"
"""Environment variable with the W&B project of commands without `--wandb`."""


@dataclass(frozen=True)
class Sweep:
    """A sweep, and the command for each of its points."""

    file: SweepFile
    recipe: str
    """Address of the recipe that the command names."""
    overrides: tuple[str, ...] = ()
    """Overrides of the command for every point."""
    path: str = ""
    """Path of the sweep file; empty for a grid of `fgrl run`."""
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
        """Return the name of its folder: equal for equal points, however many of them run."""
        whole = [self.file.definition(), self.recipe, self.overrides, self.limit, self.seed]
        return f"{self.name}-{hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:8]}"

    @property
    def folder(self) -> Path:
        return self.runs / SWEEPS / self.id

    def refuse_secrets(self) -> None:
        """Raise `UsageError` for a secret, as far as it is known by now: a sweep with a secret cannot be written and
        read again.
        """
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
        for name in ("limit", "machines", "wandb", "mlflow"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name}", str(value)]
        words += ["--tensorboard"] if self.tensorboard == "" else []
        return words + (["--tensorboard-dir", self.tensorboard] if self.tensorboard else [])

    def environment(self, point: PointRecord, threads: int, devices: str | None) -> dict[str, str]:
        """Return the environment variables of that command in the sweep. devices: the devices that it may use; None:
        the devices that this process sees.
        """
        swept = SweptPoint(self.id, point.number, point.parameters).inherited()
        own = {**os.environ, **native.inherited(), **dict.fromkeys(THREADS, str(threads)), **swept}
        own.pop(WANDB, None)  # the command has the project, if there is one
        return own if devices is None else {**own, DEVICES: devices}

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
    """Raise `UsageError` for a number that no point can have. The recipe tells which metrics evaluations measure, but
    not what other stages report and log, so only evaluations are checked. Points of other recipes and rows are not
    checked.
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


def shares(devices: Sequence[str], jobs: int) -> list[str | None]:
    """Return the devices of each of `jobs` points: a share for each point, or one device for several points if there
    are fewer devices than jobs; None for each if there are no devices.
    """
    if jobs < 2 or not devices:
        return [None] * jobs
    if len(devices) < jobs:
        return [devices[place % len(devices)] for place in range(jobs)]
    each = len(devices) // jobs
    return [",".join(devices[place * each : (place + 1) * each]) for place in range(jobs)]
