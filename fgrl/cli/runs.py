"""`fgrl runs`: what ran, when, for how long, how large it is, and its first number."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgrl import lazy
from fgrl.cli.checking import size
from fgrl.cli.shared import RUNS, AsJson, WrongWord, echo, emit
from fgrl.report.text_tables import columns
from fgrl.visible import quantity

if TYPE_CHECKING:
    from fgrl.pipeline.history import History, RunEntry
    from fgrl.results.sweep_records import SweepRecord
console = lazy.load("fgrl.console")
explaining = lazy.load("fgrl.registry.explaining")
folders = lazy.load("fgrl.pipeline.folders")
histories = lazy.load("fgrl.pipeline.history")
records = lazy.load("fgrl.results.sweep_records")
run_records = lazy.load("fgrl.results.records")

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
    history = histories.read_history(folders.Runs(root))
    total, count = history.bytes, len(history.entries)
    sweeps = dict(records.sweep_records(root))
    known_sweeps = {record.id for record in sweeps.values()}
    if inside:
        history.entries = [entry for entry in history.entries if entry.record.sweep == inside]
    else:
        alone = [entry for entry in history.entries if entry.record.sweep not in known_sweeps]
        grouped = [_as_entry(place, record, history) for place, record in sweeps.items()]
        history.entries = sorted([*alone, *grouped], key=lambda entry: entry.started, reverse=True)
    wanted = [*own, *(recipe or [])]
    known = sorted({entry.state for entry in history.entries})
    entries = [
        entry
        for entry in history.entries
        if (not wanted or any(fnmatchcase(entry.recipe, pattern) for pattern in wanted))
        and (not state or entry.state in state)
    ][:last]
    if as_json:
        emit({"folder": str(root), "bytes": total, "runs": [entry.as_json() for entry in entries]})
        return
    if not entries:
        echo(f"no runs in {folder}" if not known else f"no such runs in {folder}; states: {', '.join(known)}")
        return
    echo(
        columns([("started (UTC)", "recipe", "state", "stages", "time", "size", "run", "result"), *_rows(entries)], "")
    )
    stages = sum(1 for _stage in history.all_stages())
    echo(f"\n{quantity(count, 'run')} and {quantity(stages, 'stage')} in {root}: {size(total)}")


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


def _as_entry(place: Path, sweep: SweepRecord, history: History) -> RunEntry:
    """Return a sweep as one entry, with the stages of all its points."""
    own = [entry for entry in history.entries if entry.record.sweep == sweep.id]
    keys = {f"{name} {key}": key for entry in own for name, key in entry.stages.items()}
    finished = [stage for key in keys.values() for stage in history.stages.get(key, [])]
    best = next(iter(sweep.settings()), None)
    done = sum(point.state in ("finished", "stopped early") for point in sweep.points)
    shown = f"{done}/{len(sweep.points)} points" + (f", {len(sweep.failed)} failed" if sweep.failed else "")
    if best is not None:
        shown += f"; best {sweep.metric.rpartition('/')[2]} {records.mean_of(best):.3g}: "
        shown += records.in_words({name: best[0].parameters.get(name) for name in sweep.varied})
    seconds = sum(entry.record.seconds or 0.0 for entry in own)
    record = run_records.RunRecord(
        recipe=sweep.name, path=sweep.recipe, sweep=sweep.id, started=sweep.started, finished=sweep.finished, seconds=seconds,
        exit=sweep.exit,
    )  # fmt: skip
    running = histories.is_locked(place / histories.LOCK)
    return histories.RunEntry(
        folder=place,
        record=record,
        state=histories.RUNNING if running else record.state,
        stages=keys,
        done=sum(stage.finished for stage in finished),
        reads=[],
        headline=shown,
        bytes=histories.size_of(place) + sum(stage.bytes for stage in finished),
    )


def differing_settings(entries: Sequence[RunEntry]) -> dict[Path, str]:
    """Return, of each run, the overrides of its command that other runs of its recipe do not have."""
    words = {entry.folder: [word for word in entry.record.command if _is_override(word)] for entry in entries}
    shared: dict[str, set[str]] = {}
    for entry in entries:
        own = set(words[entry.folder])
        shared[entry.recipe] = shared.get(entry.recipe, own) & own
    return {
        entry.folder: " ".join(
            word.removeprefix("stages.") for word in words[entry.folder] if word not in shared[entry.recipe]
        )
        for entry in entries
    }


def _is_override(word: str) -> bool:
    return "=" in word and not word.startswith("-")


def _result(entry: RunEntry) -> str:
    return entry.headline or (entry.record.error.splitlines() or [""])[0][:60]


def _rows(entries: Sequence[RunEntry]) -> list[tuple[str, ...]]:
    differing = differing_settings(entries)
    return [
        (
            entry.started[:16].replace("T", " "),
            entry.recipe,
            entry.state,
            f"{entry.done}/{len(entry.stages)}",
            "" if entry.record.seconds is None else console.duration(entry.record.seconds),
            size(entry.bytes),
            entry.folder.name,
            "  ".join(filter(None, [differing[entry.folder], _result(entry)])),
        )
        for entry in entries
    ]
