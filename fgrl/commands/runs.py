"""`fgrl runs`: what ran, when, for how long, how large it is, and its first number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgrl.base import lazy
from fgrl.base.visible import quantity
from fgrl.commands.checking import size
from fgrl.commands.shared import RUNS, AsJson, WrongWord, echo, emit
from fgrl.pages.report.text_tables import columns

if TYPE_CHECKING:
    from fgrl.runs.history import History
    from fgrl.runs.records import RunRecord
    from fgrl.runs.results.sweep_records import SweepRecord
    from fgrl.runs.run import Run
console = lazy.load("fgrl.base.console")
explaining = lazy.load("fgrl.registry.explaining")
folders = lazy.load("fgrl.runs.folders")
histories = lazy.load("fgrl.runs.history")
numbers = lazy.load("fgrl.runs.results.table")
records = lazy.load("fgrl.runs.results.sweep_records")
run_records = lazy.load("fgrl.runs.records")
runs_on_disk = lazy.load("fgrl.runs.run")

EXAMPLES = """
\b
Examples:
  fgrl runs                               every run in runs/, the newest first
  fgrl runs runs/small-rtt                those of one recipe
  fgrl runs runs/sweeps/kl-1f0c93ab       the runs of a sweep, which is one line of the list
  fgrl runs --recipe 'small-*' --last 5
  fgrl runs --state failed --json

\b
A run's size is that of all stages that it used; runs share stages, so the sizes add up to more than the folder has.
`fgrl clean` deletes runs and stages that are not needed.
"""
FolderOfRuns = Annotated[
    Path, typer.Argument(metavar="[FOLDER]", help="A folder of runs, or of one recipe's runs in it.", show_default=True)
]


def runs(
    folder: FolderOfRuns = RUNS,
    recipe: Annotated[
        list[str] | None, typer.Option("--recipe", metavar="NAME", help="Only runs of this recipe, or of a pattern.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only runs in this state: running, finished, failed, ..."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", min=1, help="Only the newest N.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List runs: recipe, time, duration, state, size and the first measured number."""
    root, own = root_of(folder)
    inside = folder.name if folder.parent.name == records.SWEEPS and (folder / records.SWEEP).is_file() else ""
    history = histories.History(folders.Runs(root))
    total, count = history.bytes, len(history.entries)
    sweeps = dict(records.sweep_records(root))
    known_sweeps = {record.id for record in sweeps.values()}
    if inside:
        rows = [_row(run, history) for run in history.entries if run.record.sweep == inside]
    else:
        rows = [_row(run, history) for run in history.entries if run.record.sweep not in known_sweeps]
        rows += [_sweep_row(place, record, history) for place, record in sweeps.items()]
        rows.sort(key=lambda row: row["started"], reverse=True)
    wanted = [*own, *(recipe or [])]
    known = sorted({row["state"] for row in rows})
    entries = [
        row
        for row in rows
        if (not wanted or any(fnmatchcase(row["recipe"], pattern) for pattern in wanted))
        and (not state or row["state"] in state)
    ][:last]
    if as_json:
        for row in entries:
            del row["command"]
        emit({"folder": str(root), "bytes": total, "runs": entries})
        return
    if not entries:
        echo(f"no runs in {folder}" if not known else f"no such runs in {folder}; states: {', '.join(known)}")
        return
    echo(
        columns([("started (UTC)", "recipe", "state", "stages", "time", "size", "run", "result"), *_cells(entries)], "")
    )
    echo(f"\n{quantity(count, 'run')} and {quantity(len(history.stages), 'stage')} in {root}: {size(total)}")


def root_of(folder: Path) -> tuple[Path, list[str]]:
    """Return the folder of runs, and the recipe when `folder` is that of one recipe's runs. Raises `WrongWord` for a
    path that does not exist, but for the default, which is then empty.
    """
    if not folder.exists() and folder != RUNS:
        raise WrongWord(f"{folder}: no such folder", param_hint="FOLDER")
    if folder.parent.name == records.SWEEPS and (folder / records.SWEEP).is_file():
        return folder.parent.parent, []
    if folder.is_dir() and any(folder.glob("*Z-*")) and not (folder / "stages").is_dir():
        return folder.parent, [folder.name]
    return folder, []


def _row(run: Run, history: History) -> dict[str, Any]:
    used = history.used_by(run)
    return _as_json(run.folder, run.record) | {
        "recipe": run.name,
        "started": run.started,
        "state": run.state_now,
        "stages": run.keys,
        "done": history.done(run),
        "bytes": run.bytes + sum(stage.bytes for stage in used),
        "headline": numbers.headline(used),
    }


def _sweep_row(place: Path, sweep: SweepRecord, history: History) -> dict[str, Any]:
    """Return a sweep as one entry, with the stages of all its points."""
    own = [run for run in history.entries if run.record.sweep == sweep.id]
    keys = {f"{name} {key}": key for run in own for name, key in run.keys.items()}
    finished = [stage for key in keys.values() for stage in history.by_key.get(key, [])]
    best = next(iter(sweep.settings()), None)
    done = sum(point.state in ("finished", "stopped early") for point in sweep.points)
    shown = f"{done}/{len(sweep.points)} points" + (f", {len(sweep.failed)} failed" if sweep.failed else "")
    if best is not None:
        shown += f"; best {sweep.metric.rpartition('/')[2]} {records.mean_of(best):.3g}: "
        shown += records.in_words({name: best[0].parameters.get(name) for name in sweep.varied})
    seconds = sum(run.record.seconds or 0.0 for run in own)
    record = run_records.RunRecord(path=sweep.recipe, seconds=seconds, exit=sweep.exit)
    running = folders.is_locked(place / folders.LOCK)
    return _as_json(place, record) | {
        "recipe": sweep.name,
        "started": sweep.started,
        "state": runs_on_disk.RUNNING if running else record.state,
        "stages": keys,
        "done": sum(stage.finished for stage in finished),
        "bytes": runs_on_disk.size_of(place) + sum(stage.bytes for stage in finished),
        "headline": shown,
    }


def _as_json(place: Path, record: RunRecord) -> dict[str, Any]:
    return {"folder": str(place), **record.model_dump(include={"path", "seconds", "error", "command"})}


def _differing(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield, of each run, the overrides of its command that other runs of its recipe do not have."""
    words = [[word for word in row["command"] if "=" in word and not word.startswith("-")] for row in rows]
    shared: dict[str, set[str]] = {}
    for row, own in zip(rows, words, strict=True):
        shared[row["recipe"]] = shared.get(row["recipe"], set(own)) & set(own)
    for row, own in zip(rows, words, strict=True):
        yield " ".join(word.removeprefix("stages.") for word in own if word not in shared[row["recipe"]])


def _cells(rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (
            row["started"][:16].replace("T", " "),
            row["recipe"],
            row["state"],
            f"{row['done']}/{len(row['stages'])}",
            "" if row["seconds"] is None else console.duration(row["seconds"]),
            size(row["bytes"]),
            Path(row["folder"]).name,
            "  ".join(filter(None, [differing, row["headline"] or (row["error"].splitlines() or [""])[0][:60]])),
        )
        for row, differing in zip(rows, _differing(rows), strict=True)
    ]
