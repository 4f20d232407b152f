"""The runs in a folder: start, duration, size, and first number of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.library.inputs import RUNS
from fgrl.runs import folders, run
from fgrl.runs.history import History
from fgrl.runs.records import RunRecord
from fgrl.runs.results import sweep_records, table
from fgrl.runs.results.sweep_records import SweepRecord

if TYPE_CHECKING:
    from pandas import DataFrame

pandas = lazy.load("pandas")


@dataclass(frozen=True)
class ListedRuns:
    """The selected runs, and facts about all runs of the folder."""

    root: Path
    rows: list[dict[str, Any]]
    """Rows, one for each run or sweep; the newest first."""
    states: list[str]
    """States of the runs in the folder."""
    runs: int
    stages: int
    bytes: int


def list_runs(
    folder: Path | str = RUNS, *, recipe: Sequence[str] = (), state: Sequence[str] = (), last: int | None = None
) -> DataFrame:
    """Return the runs in a folder, as `fgrl runs` lists them: the newest first; a sweep is one row.

    folder: a folder of runs, of one recipe's runs in it, or of a sweep. recipe, state: select runs of recipes with one
    of these names or patterns, and in one of these states; empty selects all. The columns of the pandas DataFrame:
    "folder", "path" (of the recipe), "seconds", "error", "command", "recipe", "started", "state", "stages" (keys by
    name), "done", "bytes" of all stages that it used, "headline" (its first number).
    """
    return pandas.DataFrame(listed(Path(folder), recipe, state, last).rows)


def listed(folder: Path, recipes: Sequence[str], states: Sequence[str], last: int | None) -> ListedRuns:
    """Return the result of `list_runs`, and facts about all runs of the folder."""
    root, own = root_of(folder)
    history, sweeps = History(folders.Runs(root)), dict(sweep_records.sweep_records(root))
    if _is_sweep(folder):
        rows = [_row(each, history) for each in history.entries if each.record.sweep == folder.name]
    else:
        known = {record.id for record in sweeps.values()}
        rows = [_row(each, history) for each in history.entries if each.record.sweep not in known]
        rows += [_sweep_row(place, record, history) for place, record in sweeps.items()]
        rows.sort(key=lambda row: row["started"], reverse=True)
    wanted = [*own, *recipes]
    chosen = [
        row
        for row in rows
        if (not wanted or any(fnmatchcase(row["recipe"], pattern) for pattern in wanted))
        and (not states or row["state"] in states)
    ]
    return ListedRuns(
        root, chosen[:last], sorted({row["state"] for row in rows}), len(history.entries), len(history.stages),
        history.bytes,
    )  # fmt: skip


def root_of(folder: Path) -> tuple[Path, list[str]]:
    """Return the folder of runs, and the recipe if `folder` holds the runs of one recipe."""
    if _is_sweep(folder):
        return folder.parent.parent, []
    if folder.is_dir() and any(folder.glob("*Z-*")) and not (folder / "stages").is_dir():
        return folder.parent, [folder.name]
    return folder, []


def _is_sweep(folder: Path) -> bool:
    return folder.parent.name == sweep_records.SWEEPS and (folder / sweep_records.SWEEP).is_file()


def _row(each: run.Run, history: History) -> dict[str, Any]:
    used = history.used_by(each)
    return _as_json(each.folder, each.record) | {
        "recipe": each.name,
        "started": each.started,
        "state": each.state_now,
        "stages": each.keys,
        "done": history.done(each),
        "bytes": each.bytes + sum(stage.bytes for stage in used),
        "headline": table.headline(used),
    }


def _sweep_row(place: Path, sweep: SweepRecord, history: History) -> dict[str, Any]:
    """Return a sweep as one row, with the stages of all its points."""
    own = [each for each in history.entries if each.record.sweep == sweep.id]
    keys = {f"{name} {key}": key for each in own for name, key in each.keys.items()}
    finished = [stage for key in keys.values() for stage in history.by_key.get(key, [])]
    best = next(iter(sweep.settings()), None)
    done = sum(point.state in ("finished", "stopped early") for point in sweep.points)
    shown = f"{done}/{len(sweep.points)} points" + (f", {len(sweep.failed)} failed" if sweep.failed else "")
    if best is not None:
        shown += f"; best {sweep.metric.rpartition('/')[2]} {sweep_records.mean_of(best):.3g}: "
        shown += sweep_records.in_words({name: best[0].parameters.get(name) for name in sweep.varied})
    seconds = sum(each.record.seconds or 0.0 for each in own)
    record = RunRecord(path=sweep.recipe, seconds=seconds, exit=sweep.exit)
    running = folders.is_locked(place / folders.LOCK)
    return _as_json(place, record) | {
        "recipe": sweep.name,
        "started": sweep.started,
        "state": run.RUNNING if running else record.state,
        "stages": keys,
        "done": sum(stage.finished for stage in finished),
        "bytes": run.size_of(place) + sum(stage.bytes for stage in finished),
        "headline": shown,
    }


def _as_json(place: Path, record: RunRecord) -> dict[str, Any]:
    return {"folder": str(place), **record.model_dump(include={"path", "seconds", "error", "command"})}
