"""`fgrl watch`: current state of a run in another terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl.base import lazy
from fgrl.commands.shared import RUNS, AsJson, WrongWord, echo, emit

if TYPE_CHECKING:
    from fgrl.runs.run import Run
    from fgrl.runs.stage import Stage
console = lazy.load("fgrl.base.console")
folders = lazy.load("fgrl.runs.folders")
runs_on_disk = lazy.load("fgrl.runs.run")

EXAMPLES = """
\b
Examples:
  fgrl watch                                    the newest run in runs/
  fgrl watch runs/small-rtt                     the newest run of a recipe
  fgrl watch runs/small-rtt/20260501T093000Z-1f0c93ab
  fgrl watch --once --json

Reads what the run writes: its stages, the last progress line with phase and ETA (every 30 seconds at least), and the last numbers of the
stage that works. Ends when the run ends.
"""
EVERY = 2.0
"""Seconds between two updates."""
SHOWN = ("reward", "kl", "tokens", "entropy", "loss", "accuracy", "grad_norm", "lr")
"""Names of the numbers in a stage's log that are shown."""


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="[RUN]", help="A run's folder, or one with runs: the newest.", show_default=True)
    ] = RUNS,
    once: Annotated[bool, typer.Option("--once", help="Show the progress once, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress of a run until it ends: stages, phase, ETA and last numbers."""
    place = newest(folder)
    said: list[str] = []
    while True:
        run = runs_on_disk.Run(place)
        works = folders.is_locked(place / folders.LOCK)
        state = runs_on_disk.RUNNING if works else run.record.state
        if as_json:
            emit({"run": str(place), "state": state, "stages": [_as_json(stage) for stage in run.stages.values()]})
        else:
            lines = [f"{place}: {state}", *_lines(run)]
            for line in lines:
                if line not in said:
                    echo(line)
            said = lines
        if once or not works:
            raise typer.Exit(0 if works else run.record.exit or 0)
        time.sleep(EVERY)


def newest(folder: Path) -> Path:
    """Return the newest run in a folder, which may be a run, a recipe's runs, or the runs of several recipes. Raise
    `WrongWord` if there is none.
    """
    if runs_on_disk.Run(folder).has_record:
        return folder
    found = [
        place for pattern in ("*Z-*", "*/*Z-*") for place in folder.glob(pattern) if runs_on_disk.Run(place).has_record
    ]
    if not found:
        raise WrongWord(f"{folder}: no run in it", param_hint="RUN")
    return max(found, key=lambda place: (place.name, place))


def _lines(run: Run) -> list[str]:
    lines = []
    for number, stage in enumerate(run.stages.values(), start=1):
        seconds = "" if stage.seconds is None or stage.state != "done" else f" in {console.duration(stage.seconds)}"
        lines.append(f"  [{number}/{len(run.stages)}] {stage.name}: {_state(stage)}{seconds}")
        if numbers := _numbers(stage):
            lines.append(f"      {'  '.join(f'{name} {console.shown(value)}' for name, value in numbers.items())}")
    return [*lines, *(f"  {line}" for line in run.log[-1:])]


def _state(stage: Stage) -> str:
    return "works" if stage.state == "unfinished" else stage.state


def _numbers(stage: Stage) -> dict[str, float]:
    """Return the last numbers in the log of an active stage."""
    if stage.state != "unfinished":
        return {}
    last = {name: series for name in SHOWN if (series := stage.logged.get(name)) is not None and series.values}
    step = {"step": max(series.steps[-1] for series in last.values())} if last else {}
    return step | {name: series.values[-1] for name, series in last.items()}


def _as_json(stage: Stage) -> dict[str, Any]:
    return {"name": stage.name, "state": _state(stage), "numbers": _numbers(stage)}
