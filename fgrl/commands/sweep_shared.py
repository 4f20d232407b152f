"""Parts of the sweep commands: the request, the dry run, the table."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fgrl.base import lazy
from fgrl.base.errors import DONE
from fgrl.base.visible import quantity
from fgrl.commands.checking import calls_together
from fgrl.commands.shared import echo, emit, existing
from fgrl.pages.report.text_tables import columns

if TYPE_CHECKING:
    from fgrl.experiments.pipeline.sweep_points import Sweep
    from fgrl.experiments.pipeline.sweep_search import Search
    from fgrl.runs.results.sweep_records import PointRecord, SweepRecord
console = lazy.load("fgrl.base.console")
estimates = lazy.load("fgrl.runs.results.estimates")
explaining = lazy.load("fgrl.registry.explaining")
pages = lazy.load("fgrl.pages.report.sweep_page")
recipes = lazy.load("fgrl.experiments.recipe")
pipeline = lazy.load("fgrl.experiments.pipeline")
planning = lazy.load("fgrl.experiments.pipeline.planning")
search = lazy.load("fgrl.experiments.pipeline.sweep_search")
records = lazy.load("fgrl.runs.results.sweep_records")
sweep_files = lazy.load("fgrl.experiments.recipe.sweeps")
sweeping = lazy.load("fgrl.experiments.pipeline.sweeping")
sweeps = lazy.load("fgrl.library.sweeps")


def quick(recipe: Path, texts: Sequence[str], options: Mapping[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Run the grid of overrides with several values and exit with its exit code. Return if no override has several
    values.

    options: the options of `fgrl run`. The values of a point are already chosen, and a comma in them is not a
    separator.
    """
    if not any("," in text for text in texts) or {"WANDB_SWEEP_ID", planning.SWEPT} & os.environ.keys():
        return
    words = [str(recipe)]
    words += [] if options["limit"] is None else ["--limit", str(options["limit"])]
    words += [] if options["machines"] is None else ["--machines", str(options["machines"])]
    definition = sweep_files.quick_sweep(recipes.recipe_name(recipe), words, texts)
    if definition is None:
        return
    fixed = [text for text in texts if text.partition("=")[0] not in definition.parameters]
    own = {name: options[name] for name in ("runs", "wandb", "mlflow")}
    made = sweeps.of_definition(definition, {**options, "recipe": existing(recipe)}, fixed, **own)
    run_sweep(made, None, 1, None, dry_run=options["dry_run"], as_json=as_json, quiet=quiet)
    raise typer.Exit


def run_sweep(
    made: Sweep, number: int | None, jobs: int, threads: int | None, *, dry_run: bool, as_json: bool, quiet: bool
) -> None:
    """Run a sweep, print its table and exit with its exit code. With `dry_run`, print the points that would run."""
    command = ["fgrl", *sys.argv[1:]]
    if dry_run:
        record = sweeping.begin(made, command, threads, sweeps.default_threads())
        _print_dry_run(made, search.Search(made.file, made.seed, number), record, as_json)
        return
    done = sweeps.run(made, command, number, jobs, threads, console.Console(quiet=quiet)).record
    if as_json:
        emit({**done.model_dump(mode="json"), "folder": str(made.folder), "index": str(made.folder / records.INDEX)})
    else:
        echo(sweep_text(done, made))
    raise typer.Exit(done.exit or DONE)


def sweep_text(record: SweepRecord, made: Sweep) -> str:
    """Return the table of a sweep, its best point, and its failures."""
    rows = [("", *records.short_names(dict.fromkeys(record.varied)), record.metric or "number", "state", "time")]
    places = estimates.common_decimals([point.value for point in record.points if point.value is not None])
    for point in record.points:
        value = "" if point.value is None else estimates.ShownEstimate.of(point.value, places).with_interval
        best = record.lead is not None and point.number in record.lead.best
        values = [records.as_word(point.parameters.get(name)) for name in record.varied]
        seconds = "" if point.seconds is None else console.duration(point.seconds)
        rows.append((f"{'*' if best else ' '}{point.number}", *values, value, point.state, seconds))
    lines = [columns(rows, "")]
    lines += pages.lead_lines(record)
    said: dict[str, list[str]] = {}
    for point in (point for point in record.points if point.error):
        failed = f" failed with exit code {point.exit}" if point.state == "failed" else ""
        said.setdefault(f"{failed}: {point.error}", []).append(str(point.number))
    lines += [f"point{'s' * (len(numbers) > 1)} {', '.join(numbers)}{text}" for text, numbers in said.items()]
    waiting = sum(point.state in ("waiting", "unfinished") for point in record.points)
    lines += [f"{quantity(waiting, 'point')} left to run: the same command continues"] if waiting else []
    return "\n".join([*lines, f"index: {explaining.nearby(made.folder / records.INDEX)}"])


def _print_dry_run(made: Sweep, asked: Search, record: SweepRecord, as_json: bool) -> None:
    """Print the points, each with the stages that it needs first, and the costs of these stages."""
    known = asked.count if made.file.method != "bayes" else len(record.points) or min(asked.count, search.FIRST_RANDOM)
    while len(record.points) < known and (point := asked.draw(record.points)):
        record.points.append(point)
    costs: dict[str, Any] = {}
    """Costs by the key of a stage. Several points may share a stage."""
    own: list[tuple[PointRecord, list[str]]] = []
    for point in record.points:
        plan = made.plan(point)
        new = [stage for stage in plan.stages if not stage.cached and stage.key not in costs]
        found = pipeline.estimates(plan, made.limit) if new else {}
        costs |= {stage.key: found.get(stage.name, {}) for stage in new}
        own.append((point, [stage.name for stage in new]))
    if as_json:
        listed = [
            {"number": point.number, "parameters": point.parameters, "command": made.command(point), "missing": missing}
            for point, missing in own
        ]
        emit({"sweep": made.id, "of": asked.count, "threads": record.threads, "points": listed, "estimates": costs})
        return
    echo(f"{made.id}: {quantity(asked.count, 'point')}; {quantity(len(costs), 'stage')} to run")
    if len(own) < asked.count:
        echo(f"  the first {len(own)} points; the others depend on their numbers")
    rows = [("", *records.short_names(dict.fromkeys(record.varied)), "to run, but for stages of points above")]
    for point, missing in own:
        values = [records.as_word(point.parameters.get(name)) for name in record.varied]
        rows.append((str(point.number), *values, ", ".join(missing) or "nothing"))
    echo(columns(rows))
    if calls := calls_together(costs.values()):
        echo(f"  {calls}")
