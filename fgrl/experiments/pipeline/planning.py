"""The stages of a recipe: which are finished, why the others are not, and which of them `fgrl run` was asked to run."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl import registry
from fgrl.base import native
from fgrl.base.errors import DataError, UsageError
from fgrl.experiments.pipeline import keys, reasons
from fgrl.experiments.recipe.files import recipe_name
from fgrl.kinds import Stage
from fgrl.kinds.functions.file import loaded
from fgrl.kinds.specs import ModelSpec
from fgrl.registry.annotations import marker
from fgrl.registry.problems import Place, dotted
from fgrl.registry.settings import ByDevice
from fgrl.runs.folders import Runs
from fgrl.runs.records import Broken, StageRecord, Unfinished
from fgrl.runs.stage import Stage as StageOnDisk
from fgrl.runs.stage import finished_stages

if TYPE_CHECKING:
    from fgrl.experiments.recipe import Recipe


SWEPT = "FGRL_SWEPT"
"""Environment variable of the process of a point of a sweep, and of the processes of its distributed stages: the point,
as JSON.
"""


class InputsChanged(DataError):
    """A file that a stage reads has changed since the run began."""


@dataclass
class Planned:
    """One stage of a plan."""

    name: str
    stage: Stage
    component: str
    """Name of the stage's component: "finetune", "rl", ..."""
    key: str
    identity: keys.Identity
    upstream: dict[str, str]
    """Names and keys of the stages that it refers to."""
    dir: Path
    cached: bool
    why: str
    auto: dict[str, str] = field(default_factory=dict)
    """Value that each `auto` in its settings stands for, by setting: `model.dtype`."""

    @property
    def makes(self) -> str:
        return type(self.stage).makes.__name__

    def emulated(self) -> list[str]:
        """Return the settings that ask for bfloat16 on a device that only emulates it."""
        parts = [((), self.stage), *registry.walk(self.stage)]
        asked = [
            dotted((*path, name))
            for path, part in parts
            if isinstance(part, registry.Settings)
            for name, info in type(part).model_fields.items()
            if (values := marker(info.metadata, ByDevice)) and getattr(part, name) not in (None, values.float32)
        ]
        return asked if asked and native.here(self.stage.accelerator()).dtype == "float32" else []

    def as_json(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("key", "cached", "why", "component", "makes", "auto")}
        return own | {"upstream": list(self.upstream), "dir": str(self.dir), "emulated": self.emulated()}


@dataclass
class Plan:
    """The stages of a recipe in order of execution."""

    recipe: Recipe
    runs: Runs
    stages: list[Planned] = field(default_factory=list)

    @property
    def name(self) -> str:
        return recipe_name(self.recipe.address)

    def is_related(self, name: str) -> bool:
        """Return True for the name of a row of this recipe's file, or of a file that this recipe extends."""
        files = {place.file for place in self.recipe.origins.values() if isinstance(place, Place) and place.file}
        families = {recipe_name(file) for file in (*files, Path(self.recipe.path))}
        return any(name == family or name.startswith(f"{family}-") for family in families)

    @property
    def short(self) -> str:
        """Return eight digits that identify the combination of all keys."""
        return hashlib.sha256(" ".join(sorted(stage.key for stage in self.stages)).encode()).hexdigest()[:8]

    def __getitem__(self, name: str) -> Planned:
        return next(stage for stage in self.stages if stage.name == name)

    def check_inputs(self, stage: Planned, *, after: bool = False) -> None:
        """Hash the files that a stage reads again. Raises `InputsChanged` if a file has changed since the plan was
        made. after: True if the stage has run; then the executed code of a Python file counts.
        """
        code = {
            dotted(("settings", *path)): {"sha256": loaded[value]}
            for path, value in registry.walk(stage.stage)
            if after and isinstance(value, Path) and value in loaded
        }
        limit = stage.identity.get("limit")
        now = keys.identity(
            stage.stage, seed=self.recipe.seed, upstream=stage.upstream, sources=self.recipe.sources, limit=limit
        )
        planned = dict(keys.leaves(stage.identity))
        changed = [path for path, value in keys.leaves(now) if planned.get(path) != code.get(path, value)]
        if changed:
            places = ", ".join(reasons.setting(stage.name, path) for path in changed)
            raise InputsChanged(
                f"what {places} names has changed since this run began, and stage {stage.name} would mix both versions: nothing of "
                "this stage was kept. Folders and files above 1 GiB are read where they are, without a copy. Run the same "
                "command again; it takes what finished stages have made"
            )

    def surroundings(self, stage: Planned, *, checked: bool = True) -> dict[str, Any]:
        """Return the arguments of a stage's `Run` that follow from its plan.

        checked: compare the products that it reads with their checksums. Raises `DataError` when a product is missing
        or broken.
        """
        products = {}
        for name, key in stage.upstream.items():
            found = self.runs.find(key)
            again = f"run it again: fgrl run {self.recipe.address} --only {name} --only {stage.name}"
            if found is None:
                raise DataError(f"the folder of stage {name} ({key}) is gone from {self.runs.stages}: {again}")
            if checked:
                try:
                    found.check(contents=True)
                except Broken as broken:
                    found.reject()
                    raise DataError(f"{broken}, so stage {name} counts as unfinished: {again}") from None
            products[name] = found.out
        return {
            "cache": self.runs.cache,
            "seed": self.recipe.seed,
            "products": products,
            "accelerator": stage.stage.accelerator(),
        }

    @property
    def auto(self) -> dict[str, str]:
        """Return the values that `auto` stands for in this recipe, with the reason; two entries if stages use different
        devices.
        """
        return {each.dtype: each.why for each in self.recipe.auto.values()}

    def notices(self) -> list[str]:
        """Return notices of the values that `auto` and attention stand for here, and a warning about stages that ask
        for bfloat16 on a device that only emulates it.
        """
        lines = [f"auto: {dtype} ({why})" for dtype, why in self.auto.items()]
        parts = [part for stage in self.stages if not stage.cached for _path, part in registry.walk(stage.stage)]
        if any(part.attention_here() != part.attention for part in parts if isinstance(part, ModelSpec)):
            lines.append(
                "attention: sdpa instead of flash_attention_2, because flash-attn is not installed (pip install flash-attn "
                "--no-build-isolation)"
            )
        emulated = [(stage, settings) for stage in self.stages if not stage.cached and (settings := stage.emulated())]
        if emulated:
            first, settings = emulated[0]
            where = f"stages.{first.name}.{settings[0]}"
            lines.append(
                f"warning: bfloat16 is only emulated here ({native.here(first.stage.accelerator()).why}), {native.SLOWER}. "
                f"It is asked for in {', '.join(stage.name for stage, _ in emulated)}: set "
                + ("dtype=auto" if settings[0] in first.auto else f"{where}, and the like, to auto")
            )
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return `{"stages": {name: {"key", "cached", "why", ...}}}` in order of execution."""
        return {
            "recipe": self.name,
            "seed": self.recipe.seed,
            "auto": self.auto,
            "stages": {stage.name: stage.as_json() for stage in self.stages},
        }


@dataclass(frozen=True)
class SweptPoint:
    """Point of a sweep that a run belongs to."""

    sweep: str
    """Name of the sweep's folder."""
    number: int
    """Number of the point, from 1."""
    parameters: Mapping[str, Any]

    @classmethod
    def here(cls) -> SweptPoint | None:
        """Return the point that this process belongs to, or None if there is none."""
        text = os.environ.get(SWEPT)
        return cls(**json.loads(text)) if text else None

    def inherited(self) -> dict[str, str]:
        """Return the environment variables for the processes of this point."""
        return {SWEPT: json.dumps({"sweep": self.sweep, "number": self.number, "parameters": dict(self.parameters)})}


@dataclass
class Options:
    """The options of `fgrl run`."""

    only: Sequence[str] = ()
    """Names of the only stages to run. The stages that they need must be finished."""
    start: str | None = None
    """Name of the first stage to run: this stage and the stages after it are run."""
    limit: int | None = None
    """Maximum number of samples and of steps in every stage."""
    wandb: str | None = None
    """W&B project to log to, in addition to the trackers of the recipe."""
    mlflow: str | None = None
    """MLflow experiment to log to, in addition to the trackers of the recipe."""
    tensorboard: str | None = None
    """Folder for TensorBoard's event files, in addition to the trackers of the recipe. Empty: `tensorboard/` in the
    folder of the run.
    """
    arguments: Sequence[str] = ()
    """Overrides as typed, for the processes of distributed stages."""
    command: Sequence[str] = ()
    """The whole command, for the record."""
    raises: bool = False
    """True if the caller raises the error that ends the invocation (`Summary.failure`). It is then written only to
    run.log.
    """
    swept: SweptPoint | None = None
    """Point of a sweep that the run belongs to."""
    page: bool = True
    """True if `report.html` is written at the end."""

    @property
    def whole(self) -> bool:
        """Return True if the run includes all stages of the recipe."""
        return not self.only and self.start is None

    def select(self, plan: Plan) -> list[Planned]:
        """Return the stages that `--only` and `--from` select, in order. Raises `UsageError` when a stage does not
        exist, or needs a stage that is neither finished nor selected.
        """
        names = [stage.name for stage in plan.stages]
        for name in (*self.only, *([self.start] if self.start is not None else [])):
            if name not in names:
                raise UsageError(registry.unknown("stage", name, names))
        selected = plan.stages
        if self.start is not None:
            selected = selected[names.index(self.start) :]
        if self.only:
            selected = [stage for stage in selected if stage.name in self.only]
        inside = {stage.name for stage in selected}
        for stage in selected:
            for needed in stage.upstream:
                if not stage.cached and needed not in inside and not plan[needed].cached:
                    raise UsageError(
                        f"stage {stage.name} needs {needed}, which is not done yet: "
                        f"run it too (--only {needed} --only {stage.name}, or --from {needed})"
                    )
        return selected


def plan(recipe: Recipe, runs: Path, *, limit: int | None = None) -> Plan:
    """Return the plan: the keys of all stages, and which of them `runs` already has. Nothing is run or written. Raises
    `UsageError` when `runs` is a file.
    """
    planned = Plan(recipe, Runs(Path(runs)))
    planned.runs.check()

    @functools.cache
    def related() -> list[StageRecord]:
        """Return the finished stages of related recipes. They are read only if a stage is missing."""
        every = (stage.record for stage in finished_stages(planned.runs.stages))
        return [record for record in every if planned.is_related(record.recipe)]

    graph = recipe.graph()
    known: dict[str, str] = {}
    for name, stage in recipe.stages.items():
        component = registry.name_of(stage)[1]
        upstream = {other: known[other] for other in graph[name]}
        identity = keys.identity(stage, seed=recipe.seed, upstream=upstream, sources=recipe.sources, limit=limit)
        known[name] = key = keys.key(identity)
        found = planned.runs.find(key)
        why = "" if found is None else _problem(found, key)
        done = found is not None and not why
        if found is not None:
            why = why or reasons.cached(found.record)
        else:
            names = {other_key: other for other, other_key in upstream.items()}
            why = reasons.to_run(name, component, identity, names, related())
        planned.stages.append(
            Planned(
                name=name,
                stage=stage,
                component=component,
                key=key,
                identity=identity,
                upstream=upstream,
                dir=planned.runs.stages / f"{name}-{key}" if found is None else found.place,
                cached=done,
                why=why,
                auto={dotted(path[2:]): each.value for path, each in recipe.auto.items() if path[1] == name},
            )
        )
    return planned


def _problem(found: StageOnDisk, key: str) -> str:
    """Return the reason why the stage with this key does not count as finished, or an empty text if it does."""
    try:
        found.check(key)
    except Unfinished:
        return "started, not finished: continues from its checkpoint"
    except Broken as broken:
        return f"{broken}: runs again"
    return ""
