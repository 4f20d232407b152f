"""Records of one invocation: `runs/<recipe>/<UTC>-<short key>/` with the request, the environment and the result."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import Field

from fgrl import registry
from fgrl.base import ranks
from fgrl.base.errors import DONE, INTERRUPTED, WRONG_REQUEST, DataError
from fgrl.experiments.pipeline import keys
from fgrl.experiments.pipeline.environment import environment
from fgrl.experiments.pipeline.planning import Options, Plan, Planned
from fgrl.experiments.pipeline.tracking import trackers
from fgrl.experiments.recipe.tracking import MLflow, TensorBoard, Tracking, Wandb
from fgrl.registry import Settings
from fgrl.registry.problems import dotted
from fgrl.runs.folders import now
from fgrl.runs.records import RunRecord, StageRecord, UsedStage
from fgrl.runs.run import Run


class Summary(RunRecord):
    """Record of an invocation of this process, with fields that only this process knows."""

    folder: Path | None = Field(None, exclude=True)
    report: Path | None = Field(None, exclude=True)
    nothing_to_do: bool = Field(False, exclude=True)
    worker: bool = Field(False, exclude=True)
    """True if this process was a worker of a distributed stage: rank 0 reports the result."""
    failure: BaseException | None = Field(None, exclude=True)
    """Error that ended the invocation."""


START_ERRORS = (WRONG_REQUEST, DataError.exit_code, INTERRUPTED)
"""Exit codes for work that could not begin because of the request, the data, or Ctrl-C."""


def summary_of(plan: Plan, options: Options) -> Summary:
    """Return the summary of an invocation that starts now."""
    return Summary(
        recipe=plan.name,
        path=plan.recipe.address,
        about=plan.recipe.about,
        seed=plan.recipe.seed,
        key=plan.short,
        command=list(options.command),
        started=now(),
        sweep="" if options.swept is None else options.swept.sweep,
    )


def finished_before(plan: Plan) -> Summary | None:
    """Return the newest invocation that finished exactly the same plan and has its page."""
    names = {stage.name for stage in plan.stages}
    for folder in plan.runs.invocations(plan.name):
        page = folder / "report.html"
        if not page.is_file():
            continue
        record = Run(folder).record  # a broken one is that of no finished run
        if (record.key, record.exit, set(record.stages)) == (plan.short, DONE, names):
            return Summary(**dict(record), folder=folder, report=page, nothing_to_do=True)
    return None


class Invocation:
    """Folder of an invocation and its summary.

    The process of a distributed stage (`child`) uses the folder of the invocation that started it, and does not write
    the records.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan, self.options = plan, options
        self.summary = summary_of(plan, options)
        self.child = ranks.INVOCATION in os.environ
        self.environment = ranks.without_launcher(os.environ)
        """Environment variables for the processes of distributed stages, as they were before the first stage changed
        any.
        """
        self._began = time.monotonic()
        self._run = Run(Path(os.environ[ranks.INVOCATION])) if self.child else self._begun()
        self.summary.folder = self.folder = self._run.folder
        self._new: list[Path] = []
        self.tracker = trackers(
            tracking_of(plan, options),
            recipe=plan.name,
            run=self.folder,
            config=dict(plan.recipe.data),
            swept=options.swept,
        )

    def enter(self, stage: Planned, folder: Path, *, cached: bool, record: StageRecord | None = None) -> None:
        """Record the state of a stage in the summary and link to its folder. record: None while it is unfinished."""
        self.summary.stages[stage.name] = UsedStage(
            key=stage.key,
            kind=stage.component,
            dir=os.path.relpath(folder, self.folder),
            cached=cached,
            done=record is not None,
            why=stage.why,
            seconds=None if record is None else record.seconds,
            summary={} if record is None else record.summary,
        )
        if not self.child:
            link = self.folder / "stages" / stage.name
            if not link.is_symlink():
                link.symlink_to(os.path.relpath(folder, link.parent), target_is_directory=True)
        self._progress()

    def end(self, exit_code: int, error: str = "") -> None:
        """Record how the invocation ended."""
        self.summary.exit, self.summary.error, self.summary.finished = exit_code, error, now()
        self._progress()
        self._run.end()

    def begin(self, folder: Path) -> None:
        """Record that a stage begins in this folder. A folder that does not exist yet may be removed after a failed
        start.
        """
        if not folder.exists():
            self._new.append(folder)

    @property
    def failed_start(self) -> bool:
        """Return True if the invocation ended because of its inputs, or by Ctrl-C, before any stage had results to
        keep.
        """
        done_here = any(stage.done and not stage.cached for stage in self.summary.stages.values())
        begun = [self.folder / stage.dir for stage in self.summary.stages.values() if not stage.done]
        new = {os.path.realpath(folder) for folder in self._new}
        kept = any(os.path.realpath(folder) not in new or _has_work(folder) for folder in begun if folder.exists())
        return not self.child and self.summary.exit in START_ERRORS and not done_here and not kept

    def remove(self) -> None:
        """Remove the folder and the folders of the stages that it started, so that a failed start leaves no files.

        The folder of a stage stays when another process works in it by now, or has left work there.
        """
        for folder in [folder for folder in self._new if folder.exists()]:
            lock = self.plan.runs.stage_lock(folder.name.rpartition("-")[2])
            lock.parent.mkdir(parents=True, exist_ok=True)
            with suppress(Timeout), FileLock(lock).acquire(timeout=0):
                if folder.exists() and not _has_work(folder):
                    shutil.rmtree(folder)
        with suppress(FileNotFoundError):  # somebody removed it meanwhile
            shutil.rmtree(self.folder)
            if not any(self.folder.parent.iterdir()):
                self.folder.parent.rmdir()
        self.summary.folder = self.summary.report = None

    def conclude(self, conclusions: dict[str, Any]) -> None:
        """Record the conclusions of the invocation, which has ended."""
        self.summary.conclusions = conclusions
        self.save()

    def save(self) -> None:
        """Write the record of the run."""
        if not self.child:
            self._run.write(self.summary)

    def _progress(self) -> None:
        """Write the record, if enough seconds have passed since the last time."""
        self.summary.seconds = round(time.monotonic() - self._began, 3)
        self.save()

    def _begun(self) -> Run:
        """Return the run on disk, with the request and the environment."""
        recipe = self.plan.recipe
        selected = self.options.select(self.plan)
        settings = [value for stage in selected for _path, value in keys.leaves(registry.dump(stage.stage))]
        return Run.begin(
            self.plan.runs,
            self.summary,
            recipe.to_yaml(),
            inputs(self.plan, selected),
            {dotted(path): str(place) for path, place in recipe.origins.items()},
            {"command": self.summary.command, "seed": recipe.seed, **environment(Path(recipe.path))},
            (value for value in settings if isinstance(value, str)),
        )


def tracking_of(plan: Plan, options: Options) -> Tracking:
    """Return the recipe's trackers, overridden by the trackers of the command."""
    tracking = dict(plan.recipe.tracking)
    if options.wandb is not None:
        tracking["wandb"] = Wandb.model_validate({**_fields(tracking.get("wandb")), "project": options.wandb})
    if options.mlflow is not None:
        tracking["mlflow"] = MLflow(experiment=options.mlflow)
    if options.tensorboard is not None:
        tracking["tensorboard"] = TensorBoard(folder=options.tensorboard or None)
    return tracking


def _fields(settings: Settings | None) -> dict[str, Any]:
    return {} if settings is None else settings.model_dump()


def _has_work(folder: Path) -> bool:
    """Return True if a stage's folder has more than its settings and an unfinished product, which a restart deletes."""
    return any(
        inside.is_file() and inside.relative_to(folder).parts[0] not in ("recipe.yaml", "out")
        for inside in folder.rglob("*")
    )


def inputs(plan: Plan, selected: Sequence[Planned]) -> dict[str, Any]:
    """Return the inputs of the stages: hashes of files, weights, products of other stages and imported user files.

    The keys of the stages that are to run are included ("keys", by name): `fgrl clean` keeps their folders.
    """
    read = {
        stage.name: {
            path.removeprefix("settings."): value for path, value in keys.leaves(stage.identity) if keys.place(value)
        }
        for stage in plan.stages
    }
    return {
        "keys": {stage.name: stage.key for stage in selected},
        "stages": read,
        "sources": {str(path): str(digest) for path, digest in plan.recipe.sources.items()},
    }
