"""`fgrl runs`: list of runs with their times, durations, sizes and first numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fgrl.base import lazy
from fgrl.base.visible import quantity
from fgrl.commands.checking import size
from fgrl.commands.shared import RUNS, AsJson, WrongWord, echo, emit
from fgrl.pages.report.text_tables import columns

console = lazy.load("fgrl.base.console")
listed_runs = lazy.load("fgrl.library.listed_runs")

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
        list[str] | None, typer.Option("--recipe", metavar="NAME", help="Recipe of the runs, or a pattern.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Show only runs in this state: running, finished, failed, ..."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", min=1, help="Show only the newest N runs.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List runs: recipe, time, duration, state, size and the first measured number."""
    listed = listed_runs.listed(known_folder(folder), recipe or (), state or (), last)
    if as_json:
        for row in listed.rows:
            del row["command"]
        emit({"folder": str(listed.root), "bytes": listed.bytes, "runs": listed.rows})
        return
    if not listed.rows:
        states = ", ".join(listed.states)
        echo(f"no such runs in {folder}; states: {states}" if states else f"no runs in {folder}")
        return
    echo(
        columns(
            [("started (UTC)", "recipe", "state", "stages", "time", "size", "run", "result"), *_cells(listed.rows)], ""
        )
    )
    counts = f"{quantity(listed.runs, 'run')} and {quantity(listed.stages, 'stage')}"
    echo(f"\n{counts} in {listed.root}: {size(listed.bytes)}")


def known_folder(folder: Path) -> Path:
    """Return the folder. Raise `WrongWord` if it does not exist, except for the default folder, which then counts as
    empty.
    """
    if not folder.exists() and folder != RUNS:
        raise WrongWord(f"{folder}: no such folder", param_hint="FOLDER")
    return folder


def _differing(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield, for each run, the overrides in its command that not all runs of its recipe share."""
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
