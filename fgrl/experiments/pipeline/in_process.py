"""A stage in this process: its folder, its `Run`, and its record when it is finished."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fgrl.base import ranks
from fgrl.base.console import Console
from fgrl.base.files import remove, sync
from fgrl.base.sanitizing import hide_in
from fgrl.experiments.pipeline import workers
from fgrl.experiments.pipeline.environment import versions
from fgrl.experiments.pipeline.estimating import criteria
from fgrl.experiments.pipeline.interrupts import Interrupts
from fgrl.experiments.pipeline.invocation import Invocation
from fgrl.experiments.pipeline.libraries import diverted
from fgrl.experiments.pipeline.planning import InputsChanged, Plan, Planned
from fgrl.experiments.pipeline.run import Run
from fgrl.runs.folders import now
from fgrl.runs.records import StageRecord
from fgrl.runs.stage import Stage, files_of
from fgrl.training import launching


def run(
    stage: Planned, folder: Path, invocation: Invocation, console: Console, interrupted: Callable[[], bool]
) -> StageRecord:
    """Run a stage whose lock this process holds. Return its record.

    Raises `KeyboardInterrupt` when the stage left its work unfinished because of Ctrl-C, and `InputsChanged` when a
    file that it reads has changed since it was planned: then no result is kept.
    """
    began = time.monotonic()
    plan, tracker = invocation.plan, invocation.tracker
    # 1. an empty `out`, and what the stage was asked for, of inputs that are still those of the plan
    plan.check_inputs(stage)
    plan.runs.take(folder)
    on_disk = Stage(folder, stage.name)
    on_disk.begin(plan.recipe.seed, plan.recipe.data["stages"][stage.name])
    plan.runs.cache.mkdir(parents=True, exist_ok=True)
    # 2. the work
    running = Run(
        stage.name,
        folder,
        **plan.surroundings(stage),
        limit=invocation.options.limit,
        console=console,
        interrupted=interrupted,
        tracker=tracker,
    )
    with tracker.opened(stage.name, folder) as summary:
        work = plan.recipe.built_anew(stage.name)
        running.seed_libraries(with_torch=type(work).uses_torch)
        try:
            try:
                workers.forget(folder)
                with workers.reported(folder), contextlib.closing(running), launching.connected(running):
                    result = dict(work.run(running) or {}) | criteria(work)
            finally:
                plan.check_inputs(stage, after=True)
        except InputsChanged:
            shutil.rmtree(folder)  # what it keeps to go on from may come from the changed inputs
            raise
        if running.noticed:
            raise KeyboardInterrupt
        summary.update(result)
    # 3. the record that it is done, after everything that it vouches for is on the disk
    console.enter("saving")
    sync(folder / "out")
    record = StageRecord(
        name=stage.name,
        key=stage.key,
        component=stage.component,
        makes=stage.makes,
        recipe=plan.name,
        made=now(),
        seconds=round(time.monotonic() - began, 3),
        upstream=stage.upstream,
        summary=hide_in(summary),
        identity=stage.identity,
        versions=versions(),
        files=files_of(folder / "out"),
        alarms=on_disk.alarms,
    )
    on_disk.finish(record)
    on_disk.keep_alarms(None)
    for name in work.temporary():
        remove(folder / name)
    return record


def take_part(plan: Plan, stage: Planned, limit: int | None, console: Console) -> None:
    """Run as a worker (a rank above 0) of a distributed stage: compute with the others, write and print nothing."""
    found = plan.runs.find(stage.key)
    folder = stage.dir if found is None else found.place
    surroundings = plan.surroundings(stage, checked=False)  # rank 0 does that
    with (
        Interrupts(lambda _: None, ignores_sigint=True) as interrupts,
        diverted(Path(os.devnull), verbose=console.verbose),
        workers.silent(folder, ranks.rank()),
        contextlib.closing(
            Run(stage.name, folder, **surroundings, limit=limit, rank=ranks.rank(), interrupted=interrupts)
        ) as running,
    ):
        if not launching.called(folder, lambda: Stage(folder).is_done(stage.key)):
            return
        running.seed_libraries()
        work = plan.recipe.built_anew(stage.name)
        with launching.connected(running):
            work.run(running)
