"""Runs the points of a sweep: what is missing of them, the stages that they share first.

1. the record of an earlier start, whose finished points stay as they are while their stages have the same keys
2. points are drawn and planned; a point whose stages are all done, with its page, is finished without a process
3. each free worker gets stages that several points wait for, or else a point that waits for none
4. after every task the record is written; at the end the page
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fgrl.base import lazy
from fgrl.base.console import Console, duration
from fgrl.base.errors import DONE, INTERRUPTED, POINT_FAILED, WRONG_REQUEST, Aborted, FgrlError, UsageError
from fgrl.base.files import write_text
from fgrl.base.visible import quantity
from fgrl.experiments.pipeline.interrupts import Interrupts
from fgrl.experiments.pipeline.log import read_log
from fgrl.experiments.pipeline.sweep_points import Needs, Sweep, check_metric, shared_groups
from fgrl.experiments.pipeline.sweep_search import EarlyStopping, Search
from fgrl.experiments.pipeline.sweep_worker import Reply, Task, Worker, shares
from fgrl.measuring.number_names import of_model
from fgrl.registry import did_you_mean
from fgrl.runs.folders import LOCK, Runs, now
from fgrl.runs.results.comparing import options_of, row_difference
from fgrl.runs.results.sweep_records import (
    Lead,
    PointRecord,
    SharedRecord,
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

POLL = 0.3
"""Seconds between two looks at Ctrl-C and at the logs of points that may be stopped early."""
ASK_AGAIN = 1.0
"""Seconds after which a worker that was asked to stop is asked again."""


@dataclass
class _Running:
    """What a worker does."""

    number: int
    """Of the point, or of the first of those that share the stages."""
    keys: set[str]
    shared: SharedRecord | None = None
    stopped_early: bool = False
    asked: float | None = None
    """Time at which it was asked to stop."""


def begin(sweep: Sweep, command: Sequence[str], threads: int | None, default_threads: int) -> SweepRecord:
    """Return the record of a sweep: that of an earlier start, or a new one. threads: of each point; None: as at that
    start, else `default_threads`. Raises `DataError` for a broken record.
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
        shared=[] if earlier is None else earlier.shared,
    )
    if metric is None and earlier is not None:
        record.metric, record.goal, record.of_reward = earlier.metric, earlier.goal, earlier.of_reward
    return record


class Sweeping:
    """A sweep that runs."""

    def __init__(
        self, sweep: Sweep, record: SweepRecord, search: Search, *, jobs: int, devices: Sequence[str], console: Console
    ) -> None:
        self.sweep, self.record, self.search, self.console = sweep, record, search, console
        self.needs = Needs(Runs(sweep.runs))
        rule, metric = sweep.file.early_terminate, sweep.file.metric
        self.stopping = EarlyStopping(rule, metric.goal) if rule is not None and metric is not None else None
        self._replies: queue.Queue[tuple[Worker, Reply]] = queue.Queue()
        self.workers = [
            Worker(self._replies, record.threads, sweep.folder / f"worker-{place}.log", own)
            for place, own in enumerate(shares(devices, jobs), start=1)
        ]
        self._running: dict[Worker, _Running] = {}
        self._given: set[int] = set()
        """Points that this process has begun."""
        self._tried: set[str] = set()
        """Keys of the shared stages that it has begun."""

    def run(self) -> SweepRecord:
        """Run what is missing. The record has how it went: `exit` is 0, 9 where a point failed, 130 after Ctrl-C."""
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
                    for worker in self.workers:
                        worker.end(at_once=worker in self._running)
                interrupted = interrupts()
            self._conclude(interrupted=interrupted)
        finally:
            lock.release()
        return self.record

    # -- points --------------------------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Compare the points of an earlier start with what their recipes plan now."""
        for point in self.record.points:
            point.parameters = self.search.values(point.number, point.shares)
            keys = self._planned(point)
            ended = point.state == "stopped early" or (
                point.state == "finished"
                and bool(keys)
                and not self.needs.missing(point.number)
                and (self.sweep.runs / point.run).is_dir()
            )
            if keys and not (ended and point.keys == keys):
                point.state, point.exit, point.error, point.keys, point.reported = "waiting", None, "", keys, []
        if self.stopping is not None:
            self.stopping.replay(self.record.points)
        done = sum(point.state in ("finished", "stopped early") for point in self.record.points)
        if done:
            self.console.say(f"{done} points are finished already")

    def _planned(self, point: PointRecord) -> dict[str, str]:
        """Plan a point and return the keys of its stages; none where its recipe has a mistake."""
        if point.number not in self.needs.plans:
            try:
                self.needs.add(point.number, self.sweep.plan(point))
            except FgrlError as error:
                point.state, point.exit, point.error = "failed", error.exit_code, str(error)
                return {}
        return {stage.name: stage.key for stage in self.needs.plans[point.number]}

    def _open(self) -> list[PointRecord]:
        """Points that wait for their turn."""
        running = {each.number for each in self._running.values() if each.shared is None}
        return [
            point
            for point in self.record.points
            if point.state in ("waiting", "unfinished") and point.number not in running | self._given
        ]

    def _draw(self) -> None:
        """Draw points: a search draws one for each free worker, the others all at once."""
        while len(self._open()) < len(self.workers) or self.sweep.file.method != "bayes":
            point = self.search.draw(self.record.points)
            if point is None:
                return
            self.record.points.append(point)
            point.keys = self._planned(point)

    def _has_reached_target(self) -> bool:
        metric, ranked = self.sweep.file.metric, self.record.ranked
        if metric is None or metric.target is None or not ranked:
            return False
        best = mean_of(ranked[:1])
        return best >= metric.target if metric.goal == "maximize" else best <= metric.target

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _loop(self, interrupted: Callable[[], bool]) -> None:
        while True:
            if not interrupted() and not self._has_reached_target():
                for worker in self.workers:
                    if worker not in self._running:
                        self._draw()
                        self._give(worker)
            write_sweep(self.sweep.folder, self.record)
            if not self._running:
                return
            while True:
                for worker, running in self._running.items():
                    self._watch(worker, running, interrupted=interrupted())
                try:
                    worker, reply = self._replies.get(timeout=POLL)
                    break
                except queue.Empty:
                    continue
            self._take(self._running.pop(worker), reply)

    def _give(self, worker: Worker) -> None:
        """Give a worker the next task, if there is one that can begin."""
        busy = set[str]().union(*(running.keys for running in self._running.values()))
        groups = list(shared_groups(self.needs, [point.number for point in self._open()]))
        for point in self._open():
            missing = self.needs.missing(point.number)
            if busy & set(missing.values()):
                continue
            group = next((group for group in groups if point.number in group[1]), None)
            if group is not None and not self._tried & set(group[0].values()):
                self._give_shared(worker, *group)
            else:
                self._running[worker] = _Running(point.number, set(missing.values()))
                self._given.add(point.number)
                point.state = "unfinished"
                self.console.say(f"{self._label(point)}: {quantity(len(missing), 'stage')} to run")
                worker.give(task_of(self.sweep, point))
            return

    def _give_shared(self, worker: Worker, stages: dict[str, str], users: list[int]) -> None:
        point, shared = self.record.points[users[0] - 1], SharedRecord(stages=stages, points=users)
        self.record.shared = [each for each in self.record.shared if each.stages != stages]
        self.record.shared.append(shared)
        self._running[worker] = _Running(point.number, set(stages.values()), shared)
        self._tried |= set(stages.values())
        self.console.say(f"shared by {quantity(len(users), 'point')}: {', '.join(stages)}")
        worker.give(task_of(self.sweep, point, only=list(stages)))

    def _take(self, running: _Running, reply: Reply) -> None:
        """Note how a task went."""
        point = self.record.points[running.number - 1]
        self.needs.look_again(point.number)
        folder = "" if not reply.folder else str(Path(reply.folder).resolve().relative_to(self.sweep.runs.resolve()))
        if running.shared is not None:
            shared = running.shared
            shared.exit, shared.error, shared.run, shared.seconds = reply.exit, reply.error, folder, reply.seconds
            if reply.exit not in (DONE, INTERRUPTED):
                for number in shared.points:  # what they need cannot be made
                    other = self.record.points[number - 1]
                    other.state, other.exit, other.run = "failed", reply.exit, folder
                    other.error = f"{', '.join(shared.stages)}, which it shares with other points: {reply.error}"
                self.console.alert(
                    f"{', '.join(shared.stages)}: failed with exit code {reply.exit}: {_first_line(reply.error)}"
                )
            elif reply.exit == INTERRUPTED:
                self._given.update(shared.points)  # it was stopped: not again by itself
            return
        point.run, point.exit, point.error = folder or point.run, reply.exit, reply.error
        point.seconds = (point.seconds or 0.0) + (reply.seconds or 0.0)
        if running.stopped_early and reply.exit == INTERRUPTED:
            point.state, point.exit, point.error = "stopped early", None, ""
        elif reply.exit == DONE:
            finish(point, self.sweep, self.record)
        elif reply.exit == INTERRUPTED:
            point.state = "unfinished"
        else:
            point.state = "failed"
        if self.stopping is not None and reply.exit == DONE:
            self._read_log(point)
        self._say_result(point)

    def _watch(self, worker: Worker, running: _Running, *, interrupted: bool) -> None:
        """Pass on Ctrl-C, and stop a point that has fallen behind."""
        point = self.record.points[running.number - 1]
        if self.stopping is not None and running.shared is None and running.asked is None:
            running.stopped_early = self._read_log(point)
        if (interrupted or running.stopped_early) and (
            running.asked is None or time.monotonic() - running.asked > ASK_AGAIN
        ):
            running.asked = time.monotonic()
            worker.ask_to_stop()

    def _read_log(self, point: PointRecord) -> bool:
        """Take in what the point has logged since the last look. Returns True if it is to be stopped."""
        assert self.stopping is not None
        name, _, logged = self.record.metric.partition("/")
        key = point.keys.get(name)
        stage = None if key is None else self.needs.runs.find(key)
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


def task_of(sweep: Sweep, point: PointRecord, only: list[str] | None = None) -> Task:
    """Return the task of a point, or (only) of stages that it shares with others."""
    parameters = point.parameters if only is None else {}
    swept = {"sweep": sweep.id, "number": 0 if only else point.number, "parameters": parameters}
    words, command = sweep.words(point), sweep.command(point)
    command += [] if only is None else [word for name in only for word in ("--only", name)]
    options = {name: getattr(sweep, name) for name in ("limit", "wandb", "mlflow", "tensorboard")}
    options |= {"only": only or [], "command": command}
    return Task(sweep.recipe, words, str(sweep.runs), options, swept, sweep.machines)


def finish(point: PointRecord, sweep: Sweep, record: SweepRecord) -> None:
    """Note the numbers of a point whose run has ended well."""
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
    """Return the best setting and how sure its lead over the second is; None where fewer than two have numbers."""
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
