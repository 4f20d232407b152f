"""Sweeps from Python: `fgrl.sweep`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl.base import files, lazy
from fgrl.base.console import Console
from fgrl.base.errors import UsageError
from fgrl.base.visible import quantity
from fgrl.experiments import recipe
from fgrl.experiments.pipeline.sweep_points import Sweep
from fgrl.experiments.recipe.sweeps import SweepFile
from fgrl.library.inputs import RUNS
from fgrl.runs.results.sweep_records import INDEX, SweepRecord

machine = lazy.load("fgrl.experiments.pipeline.machine")
search = lazy.load("fgrl.experiments.pipeline.sweep_search")
sweep_files = lazy.load("fgrl.experiments.recipe.sweeps")
sweeping = lazy.load("fgrl.experiments.pipeline.sweeping")

VALUES = ("limit", "machines", "runs", "wandb", "mlflow", "tensorboard-dir", "only", "from")
SWITCHES = ("--tensorboard", "--dry-run", "--json", "-q --quiet", "-v --verbose")


@dataclass
class FinishedSweep:
    """The points of a sweep."""

    record: SweepRecord
    folder: Path

    @property
    def index(self) -> Path:
        """Path of its page."""
        return self.folder / INDEX


def sweep(
    file: Path | str, *, jobs: int = 1, threads: int | None = None, points: int | None = None, seed: int = 0,
    runs: Path | str | None = None, wandb: str | None = None, mlflow: str | None = None, progress: bool = True,
) -> FinishedSweep:  # fmt: skip
    """Run the points of a sweep file that have not finished, and return all points; a second call continues.

    jobs: number of points at a time. threads: threads of each point. points: maximum number of points. seed: random
    seed of the draws. Raises `Problems` and `UsageError` for a mistake; the error of a point is in the record.
    """
    made = of_file(Path(file), runs=runs, seed=seed, wandb=wandb, mlflow=mlflow)
    return run(made, ["fgrl", "sweep", str(file)], points, jobs, threads, Console(quiet=not progress))


def run(
    made: Sweep, command: Sequence[str], points: int | None, jobs: int, threads: int | None, console: Console,
) -> FinishedSweep:  # fmt: skip
    """Run the missing points of a sweep. command: command line for its record."""
    asked = search.Search(made.file, made.seed, points)
    record = sweeping.begin(made, command, threads, default_threads())
    devices = _devices() if jobs > 1 else []
    parts = [quantity(asked.count, "point"), f"{jobs} at a time", f"{quantity(record.threads, 'thread')} each"]
    console.say(f"{made.id}: {', '.join(parts)}")
    done = sweeping.Sweeping(made, record, asked, jobs=jobs, devices=devices, console=console).run()
    return FinishedSweep(done, made.folder)


def of_file(file: Path, **options: Any) -> Sweep:
    """Return the sweep of a sweep file. options: as in `of_definition`. Raises `Problems` and `UsageError`."""
    definition = sweep_files.read_sweep(file)
    given, texts = of_command(definition.words())
    return of_definition(definition, given, texts, path=str(file), **options)


def of_command(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the options of a `fgrl run` command, by their names as identifiers, and its overrides. Raises
    `UsageError`.
    """
    parser = argparse.ArgumentParser("fgrl run", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("recipe", nargs="?", default="")
    for name in VALUES:
        parser.add_argument(f"--{name}", type=int if name == "limit" else str)
    for name in SWITCHES:
        parser.add_argument(*name.split(), action="store_true")
    parser.add_argument("--set", action="append", default=[])
    try:
        options, rest = parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        raise UsageError(f"command: {error}") from None
    if wrong := [word for word in rest if "=" not in word]:
        raise UsageError(f'command: "{wrong[0]}" is neither an option of `fgrl run` nor an override')
    return vars(options), [word.removeprefix("--") for word in rest] + options.set


def of_definition(
    definition: SweepFile, options: Mapping[str, Any], texts: Sequence[str], *, path: str = "",
    runs: Path | str | None = None, seed: int = 0, wandb: str | None = None, mlflow: str | None = None,
) -> Sweep:  # fmt: skip
    """Return a sweep. options: options of the `fgrl run` that runs a point. path: the sweep file. Raises
    `UsageError`.
    """
    for name, option in (("only", "--only"), ("start", "--from"), ("from", "--from")):
        if options.get(name):
            raise UsageError(f"{option} is for single runs: a sweep runs all stages of its points")
    address = options["recipe"]
    if not files.exists(recipe.Address.parse(address).file) and (address := recipe.by_name(address)) is None:
        raise UsageError(f"{options['recipe']}: no such recipe")
    tensorboard = options["tensorboard_dir"]
    made = Sweep(
        definition, str(address), tuple(texts), path=path, limit=options["limit"], wandb=wandb, mlflow=mlflow,
        seed=seed,
        machines=None if options.get("machines") is None else str(options["machines"]),
        tensorboard=str(tensorboard) if tensorboard is not None else "" if options["tensorboard"] else None,
        runs=Path(runs if runs is not None else options.get("runs") or RUNS),
    )  # fmt: skip
    made.refuse_secrets()
    return made


def default_threads() -> int:
    """Return the default number of threads of each point. It must not depend on the number of points that run at a
    time.
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else max(1, machine.cores() // 4)


def _devices() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device for device in visible.split(",") if device.strip() not in ("", "-1")]
    return [str(place) for place in range(len(machine.gpus()))]
