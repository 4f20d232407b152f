"""A sweep on the command line: its request, its dry run, its table."""

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
from fgrl.commands.shared import echo, emit, existing
from fgrl.pages.report.text_tables import columns

if TYPE_CHECKING:
    from fgrl.experiments.pipeline.sweep_points import Cost, Needs, Sweep
    from fgrl.runs.results.sweep_records import SweepRecord
console = lazy.load("fgrl.base.console")
estimates = lazy.load("fgrl.runs.results.estimates")
explaining = lazy.load("fgrl.registry.explaining")
folders = lazy.load("fgrl.runs.folders")
machine = lazy.load("fgrl.experiments.pipeline.machine")
pages = lazy.load("fgrl.pages.report.sweep_page")
recipes = lazy.load("fgrl.experiments.recipe")
points = lazy.load("fgrl.experiments.pipeline.sweep_points")
search = lazy.load("fgrl.experiments.pipeline.sweep_search")
records = lazy.load("fgrl.runs.results.sweep_records")
sweep_files = lazy.load("fgrl.experiments.recipe.sweeps")
sweeping = lazy.load("fgrl.experiments.pipeline.sweeping")
sweeps = lazy.load("fgrl.library.sweeps")


def quick(recipe: Path, texts: Sequence[str], options: Mapping[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Run the grid of overrides that list several values and leave with its exit code; nothing where there is none.

    options: those of `fgrl run`. W&B's agent has chosen its values already, and a comma in them separates nothing.
    """
    if not any("," in text for text in texts) or "WANDB_SWEEP_ID" in os.environ:
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
    """Run a sweep, print its table and leave with its exit code; dry_run: print what would run."""
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
    """Return the table of a sweep, its best point, and what failed."""
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


# ----------------------------------------------------------------------------------------------------------------------


def planned(made: Sweep, asked: Any, record: SweepRecord, cost: Cost | None = None) -> Needs:
    """Draw all points that are known without running, and plan them."""
    needs: Needs = points.Needs(folders.Runs(made.runs))
    if made.file.method == "bayes" and not record.points:
        count = min(asked.count, search.FIRST_RANDOM)
    else:
        count = asked.count if made.file.method != "bayes" else len(record.points)
    while len(record.points) < count:
        record.points.append(asked.draw(record.points))
    for point in record.points:
        needs.add(point.number, plan := made.plan(point))
        if cost is not None:
            cost.add(plan)
    return needs


def _print_dry_run(made: Sweep, asked: Any, record: SweepRecord, as_json: bool) -> None:
    needs = planned(made, asked, record, spent := points.Cost(made.limit))
    groups, cost = list(points.shared_groups(needs, list(needs.plans))), spent.as_json()
    own = {point.number: needs.missing(point.number) for point in record.points}
    common = {key for stages, _users in groups for key in stages.values()}
    if as_json:
        listed = [
            {"number": point.number, "parameters": point.parameters, "command": made.command(point)}
            | {"missing": list(own[point.number])}
            for point in record.points
        ]
        shared = [{"stages": stages, "points": users} for stages, users in groups]
        whole = {"sweep": made.id, "of": asked.count, "threads": record.threads}
        emit({**whole, "points": listed, "shared": shared, "cost": cost})
        return
    stages = sum(key not in common for missing in own.values() for key in missing.values())
    echo(
        f"{made.id}: {quantity(asked.count, 'point')}; {quantity(len(common), 'shared stage')} and {stages} of single points to run"
    )
    if len(record.points) < asked.count:
        echo(f"  the first {len(record.points)} points; the others depend on their numbers")
    rows = [("", *records.short_names(dict.fromkeys(record.varied)), "to run")]
    for point in record.points:
        alone = [name for name, key in own[point.number].items() if key not in common]
        values = [records.as_word(point.parameters.get(name)) for name in record.varied]
        nothing = "shared stages" if own[point.number] else "nothing"
        rows.append((str(point.number), *values, ", ".join(alone) or nothing))
    echo(columns(rows))
    for shared_stages, users in groups:
        first = ", ".join(map(str, users[:8])) + ", ..." * (len(users) > 8)
        keys = ", ".join(f"{name} {key}" for name, key in shared_stages.items())
        echo(f"  shared by {quantity(len(users), 'point')} ({first}): {keys}")
    if cost["calls"] or cost["unknown"]:
        price = f", at most ${cost['usd']:.4f}" if cost["usd"] else ""
        tokens = f"{cost['prompt tokens']:,} prompt tokens, {cost['completion tokens']:,} completion tokens"
        echo(f"  calls of language models: at most {cost['calls']:,}, {tokens}{price}")
    for name in cost["unknown"]:
        echo(f"  not in these sums, as its calls or their price are not known yet: {name}")
