"""Execution of the missing stages.

1. Plan. If nothing is missing and a page of the same plan exists, report that and return.
2. Check what the missing stages need from this machine and from their rows. If something is missing, nothing starts.
3. Create the folder of this invocation, which records the request, its inputs and the environment.
4. Run each missing stage, in order, under its lock: in this process, or in separate processes when it needs several.
5. Write the record of the run after every stage, and report.html at the end, also after a failure.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fgrl.base import ranks
from fgrl.base.console import Console, duration, shown
from fgrl.base.errors import DONE, UsageError
from fgrl.base.files import refuse_links
from fgrl.experiments.pipeline import child_process, in_process, preconditions
from fgrl.experiments.pipeline.endings import concluded
from fgrl.experiments.pipeline.interrupts import Interrupts
from fgrl.experiments.pipeline.invocation import Invocation, Summary, finished_before, summary_of, tracking_of
from fgrl.experiments.pipeline.kept_inputs import inputs_kept
from fgrl.experiments.pipeline.offline import reached_or_off
from fgrl.experiments.pipeline.planning import InputsChanged, Options, Plan, Planned, plan
from fgrl.runs.records import Broken
from fgrl.runs.stage import Stage

if TYPE_CHECKING:
    from fgrl.experiments.recipe import Recipe


def execute(recipe: Recipe, runs: Path, options: Options | None = None, console: Console | None = None) -> Summary:
    """Run the stages of a recipe that are missing in `runs`. Errors of stages are reported in `Summary.exit`, not as
    exceptions; a request that cannot be carried out raises `UsageError`.
    """
    options = options or Options()
    console = console or Console()
    os.environ.update(ranks.launched())
    planned = plan(recipe, runs, limit=options.limit)
    selected = options.select(planned)
    _check_world(selected)
    if ranks.KEY in os.environ and os.environ[ranks.KEY] != selected[0].key:
        if ranks.rank() > 0:  # rank 0 says it
            raise SystemExit(InputsChanged.exit_code)
        raise InputsChanged(
            f"the recipe or a file that stage {selected[0].name} reads has changed since this run began: run again"
        )
    if ranks.rank() > 0:
        with reached_or_off(lambda _text: None):
            return _work(planned, selected, options, console)
    if options.whole and all(stage.cached for stage in planned.stages):
        before = finished_before(planned)
        if before is not None:
            return before
    if ranks.INVOCATION not in os.environ:  # the process that started this one has checked them
        preconditions.check([stage for stage in selected if not stage.cached], tracking_of(planned, options))
    invocation = Invocation(planned, options)
    with concluded(invocation, console) as interrupts, inputs_kept(planned, selected), reached_or_off(console.say):
        if not invocation.child:
            for line in planned.notices():
                console.say(line)
        for stage in selected:
            _Step(stage, invocation, console, interrupts).take()
    return invocation.summary


def _check_world(selected: list[Planned]) -> None:
    """Raise `UsageError` if the number of processes is not what the stage needs, or if there are several processes for
    several stages.
    """
    started = ranks.started()
    if started in (None, 1):
        for stage in selected:
            if stage.stage.nodes() > 1 and not stage.cached:
                raise UsageError(
                    f"stage {stage.name} trains on {stage.stage.nodes()} nodes (its train.nodes), and this is one process: `fgrl launch RECIPE "
                    "--machines FILE --slurm` writes a job for SLURM; elsewhere start torchrun on every node, or set train.nodes to 1"
                )
        if started is None or len(selected) != 1:
            return
    if len(selected) != 1:
        raise UsageError("a launcher (torchrun, srun) runs one stage at a time: name it with --only")
    wanted = selected[0].stage.processes(), selected[0].stage.nodes()
    if (started, ranks.nodes()) != wanted:
        there, needed = (
            f"{count} processes" + f" on {nodes} nodes" * (nodes > 1)
            for count, nodes in ((started, ranks.nodes()), wanted)
        )
        raise UsageError(
            f"a launcher (torchrun, srun) started {there}, and stage {selected[0].name} computes with {needed} (its train.devices, 1 "
            f"where it has none, on each of train.nodes): start {needed}"
        )


def _work(planned: Plan, selected: list[Planned], options: Options, console: Console) -> Summary:
    in_process.take_part(planned, selected[0], options.limit, console)
    summary = summary_of(planned, options)
    summary.exit, summary.worker = DONE, True
    return summary


class _Step:
    """One stage of an invocation."""

    def __init__(self, stage: Planned, invocation: Invocation, console: Console, interrupts: Interrupts) -> None:
        self.stage, self.invocation, self.console, self.interrupts = stage, invocation, console, interrupts
        stages = invocation.plan.stages
        self.runs = invocation.plan.runs
        self.label = f"[{stages.index(stage) + 1}/{len(stages)}] {stage.name}"
        self.is_read = any(stage.name in other.upstream and not other.cached for other in stages)
        """True if a stage that is to run reads its product."""

    def take(self) -> None:
        """Load the stage from the cache, or run it."""
        if self._from_cache():
            return
        if child_process.is_needed(self.stage):
            self._stop_if_interrupted()
            self._run_in_child()
            return
        with self.runs.lock(self.stage.key, waiting=self._report_waiting, leave=self.interrupts) as held:
            if not held:
                raise KeyboardInterrupt
            self._stop_if_interrupted()
            if not self._from_cache():  # the process that held the lock may have finished it
                self._run_here()

    def _from_cache(self) -> bool:
        found = self.runs.find(self.stage.key)
        if found is None or not found.is_done(self.stage.key):
            return False
        if self.is_read:
            try:
                found.check(contents=True)
            except Broken as broken:
                self.console.alert(f"{self.label}: {broken}: runs again")
                found.reject()
                return False
        self.invocation.enter(self.stage, found.place, cached=True, record=found.record)
        self.console.say(f"{self.label}: from the cache")
        return True

    def _run_here(self) -> None:
        folder = self._begin()
        began = time.monotonic()
        self.console.prefix = f"{self.label} · "
        self.console.enter("loading")
        try:
            record = in_process.run(self.stage, folder, self.invocation, self.console, self.interrupts)
        finally:
            self.console.prefix = ""
        self.invocation.enter(self.stage, folder, cached=False, record=record)
        numbers = [
            f"{name} {shown(value)}" for name, value in record.summary.items() if isinstance(value, int | float | str)
        ]
        self.console.say("  ".join([f"{self.label}: done in {duration(time.monotonic() - began)}", *numbers]))

    def _run_in_child(self) -> None:
        folder = self._begin()
        self.console.enter("")  # the child says what it does
        child_process.run(self.stage, folder, self.invocation, self.console)
        self.invocation.enter(self.stage, folder, cached=False, record=Stage(folder).check())

    def _begin(self) -> Path:
        """Announce the stage and record it as unfinished. Return the folder to work in."""
        found = self.runs.find(self.stage.key)
        folder = self.stage.dir if found is None else found.place
        refuse_links(folder, self.runs.root)
        self.invocation.begin(folder)
        if not self.invocation.child:  # our parent has announced it
            self.console.say(f"{self.label}: {self.stage.why}")
        self.invocation.enter(self.stage, folder, cached=False)
        return folder

    def _report_waiting(self, owner: str) -> None:
        self.console.say(f"{self.label}: being run by {owner}; waiting for it")

    def _stop_if_interrupted(self) -> None:
        if self.interrupts():
            raise KeyboardInterrupt
