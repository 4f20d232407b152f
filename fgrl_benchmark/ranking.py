"""Tuning and test of a method in the same way as for the benchmark's own methods: `fgrl benchmark`."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

import fgrl
from fgrl.base import stops
from fgrl.base.console import Console, duration, listening
from fgrl.base.errors import Stopped
from fgrl.library.inputs import override_texts
from fgrl_benchmark import benchmark
from fgrl_benchmark.benchmark import Point
from fgrl_benchmark.comparisons import SCALAR
from fgrl_benchmark.own_method import START, Method
from fgrl_benchmark.sheet import REFERENCE, TEST, TUNE, Sheet
from fgrl_benchmark.worlds import World

THREADS = "1"
"""Number of threads of each run, as in the benchmark's own runs: with more, sums are rounded differently."""


class Item(NamedTuple):
    """A run to do."""

    phase: str
    point: Point
    plan: Mapping[str, Any]


def tuning(method: Method) -> list[Item]:
    """Return the runs that choose a method's settings."""
    plan = method.plan(method.world.tuning)
    trials = benchmark.trials(method.entry, plan["rates"], knobs=plan.get("knobs", True))
    return [
        Item(TUNE, Point(method.name, task, seed, settings), plan)
        for seed in benchmark.seeds_of(str(plan["seeds"])) for task in method.world.tasks for settings in trials
    ]  # fmt: skip


def chosen(method: Method, sheet: Sheet) -> dict[str, dict[str, Any]]:
    """Return the settings that the tuning chose, by task. Raises `Stopped` if no trial finished."""
    of_task = method.plan(method.world.test).get("of_task")
    found = {}
    for task in method.world.tasks:
        best = benchmark.best(line for line in sheet.of(TUNE) if line["task"] == task or not of_task)
        if method.name not in best:
            reason = next((line["stopped"] for line in sheet.lines if "stopped" in line), "no trial has run")
            raise Stopped(f"{method.name}: no trial on {task} came to its end: {reason}")
        found[task] = best[method.name]
    return found


def testing(method: Method, settings: Mapping[str, Mapping[str, Any]]) -> list[Item]:
    """Return the runs that count."""
    plan = method.plan(method.world.test)
    return [
        Item(TEST, Point(method.name, task, seed, settings[task]), plan)
        for seed in method.world.seeds for task in method.world.tasks
    ]  # fmt: skip


def references(world: World) -> list[Item]:
    """Return a run of the scalar on each task for which the benchmark has a line. It shows whether the result is the
    same on this machine, and the cost of a run.
    """
    known, seed = world.known(), world.seeds[0]
    lines = {task: known[task].get(SCALAR, {}).get(seed) for task in world.tasks}
    plan = world.plan(world.test, {})
    return [Item(REFERENCE, Point(SCALAR, task, seed, line["settings"]), plan) for task, line in lines.items() if line]


def seconds_each(world: World) -> float:
    """Return the seconds of one core that a run of the scalar took."""
    lines = [line for methods in world.known().values() for line in methods.get(SCALAR, {}).values()]
    return statistics.median(line["processor seconds"] for line in lines) if lines else benchmark.SECONDS[world.recipe]


def rank(method: Method, sheet: Sheet, *, runs: str, jobs: int, console: Console) -> None:
    """Do the runs of a method that have no line yet. The model that they start from is trained first if it is
    missing.
    """
    first = [*tuning(method), *references(method.world)]
    todo = [item for item in first if not sheet.has(item.phase, item.point.key)]
    tests = len(method.world.seeds) * len(method.world.tasks)
    for item in todo:
        given = override_texts(benchmark.overrides(item.point, item.plan))
        fgrl.validate(benchmark.recipe_of(item.point, item.plan), [*given, START])
    missing = len(todo) + tests - len(sheet.of(TEST)) - sheet.stopped(TEST)
    if missing:
        takes = duration(missing * seconds_each(method.world) / jobs)
        console.say(
            f"{method.name}: {missing} of {len(first) + tests} runs have no line; about {takes} with {jobs} at a time, where each takes as long as {SCALAR}"
        )
    with workers(jobs, started(method.world, runs, console) if missing else "", runs) as pool:
        do(todo, sheet, pool, console, f"{method.name} · tuning")
        settings = chosen(method, sheet)
        last = [item for item in testing(method, settings) if not sheet.has(item.phase, item.point.key)]
        do(last, sheet, pool, console, f"{method.name} · test")


def started(world: World, runs: str, console: Console) -> str:
    """Return the folder of the model that every method starts from, after training it if it is missing."""
    os.environ["OMP_NUM_THREADS"] = THREADS
    torch.set_num_threads(int(THREADS))
    return benchmark.start(world.start, "", runs, console.say)


@contextmanager
def workers(jobs: int, start: str, runs: str) -> Iterator[Executor]:
    """Return processes that each do one run after another, and that end with this process."""
    os.environ["OMP_NUM_THREADS"] = THREADS
    with (
        stops.children_end_with_us(os.environ),
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(start, runs)) as pool,
    ):
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def do(items: Iterable[Item], sheet: Sheet, pool: Executor, console: Console, what: str) -> None:
    """Do runs, and write the line of each as soon as it is ready."""
    waiting = {pool.submit(_line, item): item for item in items}
    if not waiting:
        return
    with listening(console), console.progress(what, len(waiting)) as ticker:
        for future in as_completed(waiting):
            line = future.result()
            sheet.add(line)
            ticker.advance(1, **({"right": line["policy.right"]} if "policy.right" in line else {"stopped": 1}))


_HERE: dict[str, str] = {}
"""State of a process that does runs: the model that they start from, and the folder of runs."""


def _begin(start: str, runs: str) -> None:
    stops.end_with_parent()
    torch.set_num_threads(int(THREADS))
    _HERE.update(start=start, runs=runs)


def _line(item: Item) -> dict[str, Any]:
    """Return the line of a run; if the training stopped itself, it has `stopped` in place of numbers."""
    point = item.point
    try:
        return {"phase": item.phase, **benchmark.result(point, {**item.plan, "started": _HERE["start"]}, _HERE["runs"])}
    except Stopped as error:
        return {
            "phase": item.phase, "key": point.key, "method": point.method, "task": point.task, "seed": point.seed,
            "settings": dict(point.settings), "stopped": str(error).splitlines()[0],
        }  # fmt: skip
