"""Execution of the points of a sweep: each is a `fgrl run` in a separate process.

1. Read the record of an earlier start. Its finished points stay as they are while their stages have the same keys.
2. Draw and plan points.
3. Start a point when there is room for it and no running point has yet to make a stage that it needs. So stages that
   several points share are made once, by the first of these points.
4. Write the record after every point, and the page at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fgrl.base import lazy, replies, stops
from fgrl.base.console import Console, duration
from fgrl.base.errors import DONE, FAILED, INTERRUPTED, POINT_FAILED, WRONG_REQUEST, Aborted, FgrlError, UsageError
from fgrl.base.files import write_text
from fgrl.base.visible import quantity
from fgrl.experiments.pipeline.interrupts import Interrupts
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.sweep_points import Sweep, check_metric, shares
from fgrl.experiments.pipeline.sweep_search import EarlyStopping, Search
from fgrl.measuring.number_names import of_model
from fgrl.registry import did_you_mean
from fgrl.runs.folders import LOCK, Runs, now
from fgrl.runs.results.comparing import options_of, row_difference
from fgrl.runs.results.sweep_records import (
    Lead,
    PointRecord,
    SweepRecord,
    in_words,
    main_number,
    mean_of,
    number_of,
    numbers_of,
    read_sweep_record,
    write_sweep,
)
from fgrl.runs.results.table import Row, evaluation_of, rows_of
from fgrl.runs.run import Run

page = lazy.load("fgrl.pages.report.sweep_page")

POLL = 0.2
"""Seconds between two checks for Ctrl-C, and of the processes and logs of points."""


@dataclass
class _Running:
    """A running point."""

    point: PointRecord
    devices: str | None
    process: subprocess.Popen[bytes]
    replied: Path
    """File with the reply of its command."""
    began: float = field(default_factory=time.monotonic)
    asked: bool = False
    """True if the point was asked to stop."""
    stopped_early: bool = False

    @property
    def reply(self) -> Mapping[str, Any] | None:
        """Return the reply of `fgrl run --json`, or None if the process ended without one."""
        return dict(json.loads(self.replied.read_text(encoding="utf-8"))) if self.replied.exists() else None


def begin(sweep: Sweep, command: Sequence[str], threads: int | None, default_threads: int) -> SweepRecord:
    """Return the record of a sweep: the record of an earlier start, or a new one. threads: number for each point; None:
    as at the earlier start, else `default_threads`. Raises `DataError` for a broken record.
    """
    check_metric(sweep)
    earlier = read_sweep_record(sweep.folder)
    metric = sweep.file.metric
    record = SweepRecord(
        id=sweep.id,
        name=sweep.file.name or sweep.name,
        file=sweep.path,
        about=sweep.file.description or "",
        recipe=sweep.recipe,
        command=list(command),
        method=sweep.file.method,
        metric="" if metric is None else metric.name,
        goal="maximize" if metric is None else metric.goal,
        varied=list(sweep.file.varied),
        threads=threads or (earlier.threads if earlier is not None else default_threads),
        seed=sweep.seed,
        started=now() if earlier is None else earlier.started,
        points=[] if earlier is None else earlier.points,
    )
    if metric is None and earlier is not None:
        record.metric, record.goal, record.of_reward = earlier.metric, earlier.goal, earlier.of_reward
    return record


class Sweeping:
    """A running sweep."""

    def __init__(
        self, sweep: Sweep, record: SweepRecord, search: Search, *, jobs: int, devices: Sequence[str], console: Console
    ) -> None:
        self.sweep, self.record, self.search, self.console = sweep, record, search, console
        self.runs = Runs(sweep.runs)
        rule, metric = sweep.file.early_terminate, sweep.file.metric
        self.stopping = EarlyStopping(rule, metric.goal) if rule is not None and metric is not None else None
        self._room = shares(devices, jobs)
        """Devices for each point that may start now."""
        self._running: list[_Running] = []
        self._begun: set[int] = set()
        """Points that this process has started."""
        self._done: set[str] = set()
        """Keys of stages that are known to be finished."""

    def run(self) -> SweepRecord:
        """Run the missing points. Return the record, whose `exit` is 0, 9 if a point failed, or 130 after Ctrl-C."""
        folder = self.sweep.folder
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"another process runs this sweep ({folder}): wait for it, or stop it") from None
        try:
            self._take_up()
            self._draw()
            self.sweep.refuse_secrets()  # again: the recipes name the variables that hold secrets
            write_text(folder / "sweep.yaml", self.sweep.file.to_yaml())
            with Interrupts(self.console.alert) as interrupts:
                try:
                    self._loop(interrupts)
                except Aborted:
                    self.console.alert("aborted")
                finally:
                    for running in self._running:
                        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                            os.killpg(running.process.pid, signal.SIGKILL)
                        running.process.wait()
                interrupted = interrupts()
            self._conclude(interrupted=interrupted)
        finally:
            lock.release()
        return self.record

    # -- points --------------------------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Compare the points of an earlier start with the present plans of their recipes."""
        for point in self.record.points:
            point.parameters = self.search.values(point.number, point.shares)
            self._plan(point)
        if self.stopping is not None:
            self.stopping.replay(self.record.points)
        done = sum(point.state in ("finished", "stopped early") for point in self.record.points)
        if done:
            self.console.say(f"{done} points are finished already")

    def _plan(self, point: PointRecord) -> None:
        """Record the keys of a point's stages and mark it as waiting, unless it has ended with the same keys. A mistake
        in its recipe marks it as failed.
        """
        try:
            stages = self.sweep.plan(point).stages
        except FgrlError as error:
            point.state, point.exit, point.error, point.keys = "failed", error.exit_code, str(error), {}
            return
        self._done |= {stage.key for stage in stages if stage.cached}
        keys = {stage.name: stage.key for stage in stages}
        whole = point.state == "finished" and self._done.issuperset(keys.values())
        ended = point.state == "stopped early" or (whole and (self.sweep.runs / point.run).is_dir())
        if point.keys != keys or not ended:
            point.state, point.exit, point.error, point.keys, point.reported = "waiting", None, "", keys, []

    def _missing(self, point: PointRecord) -> set[str]:
        """Return the keys of a point's stages that are not finished."""
        for key in {*point.keys.values()} - self._done:
            found = self.runs.find(key)
            if found is not None and found.is_done(key):
                self._done.add(key)
        return {*point.keys.values()} - self._done

    def _open(self) -> list[PointRecord]:
        """Return the points that are waiting to start."""
        return [each for each in self.record.points if each.state == "waiting" and each.number not in self._begun]

    def _draw(self) -> None:
        """Draw points: a search draws one for each point that may start, the other methods all at once."""
        while len(self._open()) < len(self._room) or self.sweep.file.method != "bayes":
            point = self.search.draw(self.record.points)
            if point is None:
                return
            self.record.points.append(point)
            self._plan(point)

    def _has_reached_target(self) -> bool:
        metric, ranked = self.sweep.file.metric, self.record.ranked
        if metric is None or metric.target is None or not ranked:
            return False
        best = mean_of(ranked[:1])
        return best >= metric.target if metric.goal == "maximize" else best <= metric.target

    # -- processes -----------------------------------------------------------------------------------------------------

    def _loop(self, interrupted: Callable[[], bool]) -> None:
        while True:
            while self._room and not interrupted() and not self._has_reached_target():
                self._draw()
                busy = set[str]().union(*(self._missing(running.point) for running in self._running))
                point = next((each for each in self._open() if not busy & {*each.keys.values()}), None)
                if point is None:
                    break
                self._begin(point)
            if not self._running:
                return
            time.sleep(POLL)
            for running in [*self._running]:
                if running.process.poll() is None:
                    self._watch(running, interrupted=interrupted())
                else:
                    self._running.remove(running)
                    self._room.append(running.devices)
                    self._take(running)
                    write_sweep(self.sweep.folder, self.record)

    def _begin(self, point: PointRecord) -> None:
        self._begun.add(point.number)
        point.state = "unfinished"
        write_sweep(self.sweep.folder, self.record)
        self.console.say(f"{self._label(point)}: {quantity(len(self._missing(point)), 'stage')} to run")
        devices, reply = self._room.pop(0), self._log(point).with_suffix(".json").absolute()
        reply.unlink(missing_ok=True)
        environment = {**self.sweep.environment(point, self.record.threads, devices), replies.REPLY: str(reply)}
        with self._log(point).open("ab") as log, stops.children_end_with_us(environment):
            process = subprocess.Popen(
                [sys.executable, "-m", *self.sweep.command(point), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches it once, through us
            )
        self._running.append(_Running(point, devices, process, reply))

    def _log(self, point: PointRecord) -> Path:
        return self.sweep.folder / f"point-{point.number}.log"

    def _watch(self, running: _Running, *, interrupted: bool) -> None:
        """Pass on Ctrl-C, and stop a point that has fallen behind."""
        if not running.asked and self.stopping is not None:
            running.stopped_early = self._read_log(running.point)
        if (interrupted or running.stopped_early) and not running.asked:
            running.asked = True
            running.process.send_signal(signal.SIGTERM)

    def _take(self, running: _Running) -> None:
        """Record how a point ended."""
        point, reply = running.point, running.reply
        code = running.process.returncode if reply is None else reply["exit"]
        stages = (reply or {}).get("stages", {})
        if reply is not None and reply.get("folder"):
            point.run = str(Path(reply["folder"]).resolve().relative_to(self.sweep.runs.resolve()))
        if code == INTERRUPTED or (running.asked and code < 0):
            point.state = "stopped early" if running.stopped_early else "unfinished"
        elif reply is None:
            how = f"signal {-code} has ended it" if code < 0 else f"it ended with {code}"
            memory = "; the machine may have been out of memory" if code == -signal.SIGKILL else ""
            point.state, point.exit = "failed", max(code, FAILED)
            point.error = f"its process was lost: {how}{memory} (see {self._log(point).name})"
            missing = self._missing(point)
            first = next(((key, name) for name, key in point.keys.items() if key in missing), None)
            if first is not None and self.runs.find(first[0]) is not None:  # it has begun
                self._fail_with(point, dict([first]))
        elif code == DONE:
            finish(point, self.sweep, self.record)
            if self.stopping is not None:
                self._read_log(point)
        else:
            point.state, point.exit, point.error = "failed", code, reply["error"].removeprefix("fgrl: ")
            self._fail_with(point, {stage["key"]: name for name, stage in stages.items() if not stage["done"]})
        point.seconds = time.monotonic() - running.began
        if point.state == "finished":
            point.seconds = sum(stage["seconds"] or 0.0 for stage in stages.values())
        self._say_result(point)

    def _fail_with(self, point: PointRecord, failed: Mapping[str, str]) -> None:
        """Mark the points as failed that need a stage which another point could not make. failed: names by keys."""
        for other in self._open():
            if name := next((failed[key] for key in other.keys.values() if key in failed), None):
                other.state, other.exit, other.run = "failed", point.exit, point.run
                other.error = f"{name}, which it shares with point {point.number}: {point.error}"

    def _read_log(self, point: PointRecord) -> bool:
        """Read what the point has logged since the last call. Return True if the point is to be stopped."""
        assert self.stopping is not None
        name, _, logged = self.record.metric.partition("/")
        key = point.keys.get(name)
        stage = None if key is None else self.runs.find(key)
        rows = [] if stage is None else read_log(stage.place / "log.jsonl")
        values = [row[logged] for row in rows if row.get(logged) is not None]
        for count in range(len(point.reported) + 1, len(values) + 1):
            point.reported.append((count, float(values[count - 1])))
            if self.stopping.stops(point, count, float(values[count - 1])):
                return True
        return False

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _conclude(self, *, interrupted: bool) -> None:
        record = self.record
        record.finished = now()
        waits = any(point.state in ("waiting", "unfinished") for point in record.points)
        interrupted = interrupted or (waits and not self._has_reached_target())
        record.exit = INTERRUPTED if interrupted else POINT_FAILED if record.failed else DONE
        if record.exit == DONE and record.metric and record.points and not record.ranked:
            record.exit = WRONG_REQUEST  # no point has the number
        if self.stopping is not None and not any(point.reported for point in record.points):
            self.console.alert(
                f"early_terminate: no point logged {record.metric} while it trained, so none was stopped"
            )
        record.lead = lead(record, self.sweep.runs)
        write_sweep(self.sweep.folder, record)
        page.write(self.sweep.folder)

    def _label(self, point: PointRecord) -> str:
        varied = {name: value for name, value in point.parameters.items() if name in self.record.varied}
        return f"[{point.number}/{self.search.count}] {in_words(varied)}"

    def _say_result(self, point: PointRecord) -> None:
        label = self._label(point)
        if point.state == "failed":
            first = next(other.number for other in self.record.points if other.error == point.error)
            why = _first_line(point.error) if first == point.number else f"as point {first}"
            self.console.alert(f"{label}: failed with exit code {point.exit}: {why}")
            return
        value = (
            "" if point.value is None or point.value.mean is None else f"  {self.record.metric} {point.value.mean:.4g}"
        )
        after = f" after {point.reported[-1][0]} values" if point.state == "stopped early" else ""
        self.console.say(f"{label}: {point.state}{after} in {duration(point.seconds or 0.0)}{value}")


def finish(point: PointRecord, sweep: Sweep, record: SweepRecord) -> None:
    """Record the numbers of a point whose run was successful."""
    run = Run(sweep.runs / point.run)
    point.state, point.exit, point.error, point.numbers = "finished", DONE, "", numbers_of(run)
    if not record.metric and (main := main_number(run)) is not None:
        record.metric, record.goal, record.of_reward = main
    point.value = number_of(run, record.metric, point.numbers) if record.metric else None
    if record.metric and point.value is None:
        known = sorted(
            point.numbers, key=lambda name: (name.partition("/")[0] != record.metric.partition("/")[0], name)
        )
        near = did_you_mean(record.metric, known)
        point.error = f'it has no number "{record.metric}"{near}  there are: {", ".join(known[:8]) or "none"}'


def lead(record: SweepRecord, runs: Path) -> Lead | None:
    """Return the best setting and the confidence of its lead over the second; None if fewer than two have numbers."""
    settings = record.settings()
    if len(settings) < 2:
        return None
    best, second = settings[:2]
    result = Lead(best=[point.number for point in best], second=[point.number for point in second])
    stage, _, rest = record.metric.partition("/")
    measuring = Run(runs / best[0].run).stages.get(stage)
    if measuring is None or not measuring.measured:
        result.note = f"{record.metric} is not a number of an evaluation, whose answers could be paired by prompt"
        return result
    cells: dict[str, dict[str, Row]] = {"best": {}, "second": {}}
    for name, points in (("best", best), ("second", second)):
        for point in points:
            evaluation = evaluation_of(Run(runs / point.run).stages[stage])
            label = str(point.parameters["seed"]) if len(points) > 1 else "own"
            for row in rows_of(name, stage, evaluation):
                if of_model(row.metric, row.model, evaluation.models, evaluation.baseline) == rest:
                    cells[name][label] = row
    if not all(cells.values()):
        result.note = f"no answers of {record.metric} are recorded"
        return result
    change = row_difference(cells["best"], cells["second"])
    if isinstance(change, str):
        result.note = change
        return result
    result.difference, result.over_seeds = change.over_prompts, change.over_seeds if len(best) > 1 else None
    if result.difference is None:
        result.note = str(options_of(*cells.values()))
    return result


def _first_line(error: str) -> str:
    return (error.splitlines() or ["no message"])[0]
