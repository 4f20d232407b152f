"""Deletion of unneeded files from a folder of runs.

Only folders that fgrl made are ever deleted: runs (`<recipe>/<time>-<key>/`), stages (`stages/<name>-<key>/`) and
checkpoints of finished stages. A folder in which a process works, a stage that a remaining run needs, and files behind
a link are never deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fgrl.base.errors import UsageError
from fgrl.base.files import COPIES, LinkRefused, leftovers, remove
from fgrl.registry import unknown
from fgrl.runs.folders import LOCK, RESERVED, TIME, Runs, is_locked
from fgrl.runs.history import History
from fgrl.runs.results.table import headline
from fgrl.runs.run import INPUTS, RUNNING, Run
from fgrl.runs.stage import Stage, size_of
from fgrl.training.checkpoints import NAMES

UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class Wanted:
    """Request for a deletion. The conditions on runs are combined with "and": old runs of a recipe."""

    older_than: timedelta | None = None
    """Minimum time since a run started, after which it is deleted with the stages that no other run needs."""
    recipes: Sequence[str] = ()
    """Recipes (names or patterns) whose runs are deleted, with the stages that no other run needs. With `unreferenced`
    or `checkpoints` no runs are deleted, and only stages of these recipes.
    """
    unreferenced: bool = False
    """True to delete stages that no run needs; with `older_than` only stages that were last worked on longer ago. Also
    deleted are incomplete files of killed processes and, while nothing runs, the copies of data files that runs have
    read.
    """
    checkpoints: bool = False
    """True to delete checkpoints of finished stages, which nothing reads any more."""

    @property
    def of_runs(self) -> bool:
        return not self.unreferenced and not self.checkpoints and (bool(self.recipes) or self.older_than is not None)


@dataclass(frozen=True)
class Deletion:
    """One folder or file to delete."""

    path: Path
    what: str
    """Kind of the item: "run", "stage", "checkpoint" or "leftover"."""
    bytes: int
    why: str

    def as_json(self) -> dict[str, Any]:
        return {"path": str(self.path), "what": self.what, "bytes": self.bytes, "why": self.why}


@dataclass
class Deletions:
    """Files and folders to delete, and requested ones that are kept."""

    items: list[Deletion] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Reasons for keeping items that were requested."""
    freed: int | None = None
    """Freed bytes; None before the deletion."""
    problems: list[str] = field(default_factory=list)
    """Items that could not be deleted, with the reason."""

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    def as_json(self) -> dict[str, Any]:
        return {"bytes": self.bytes, "items": [item.as_json() for item in self.items], "kept": self.kept}


def parse_age(text: str) -> timedelta:
    """Return an age from `30d`, `12h`, `2w` or `90m`. Raises ValueError."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdigit():
        raise ValueError(f'"{text}": wants a number and a unit, as in 30d ({", ".join(UNITS)}: minutes to weeks)')
    return timedelta(seconds=int(number) * UNITS[unit])


def deletions(runs: Runs, wanted: Wanted, now: datetime | None = None) -> Deletions:
    """Return the items to delete; nothing is deleted here. Raises `UsageError` for a recipe that has no runs."""
    if (locks := runs.stages / ".locks").is_symlink():
        raise LinkRefused(locks)
    history = History(runs)
    now = now or datetime.now(UTC)
    result = Deletions()
    leaving = [entry for entry in history.entries if wanted.of_runs and _is_wanted(entry, wanted, now)]
    _check_recipes(history, wanted)
    for entry in [entry for entry in leaving if entry.state_now == RUNNING]:
        result.kept.append(f"{_short(entry.folder)} is running")
        leaving.remove(entry)
    left = {entry.folder for entry in leaving}
    remaining = [entry for entry in history.entries if entry.folder not in left]
    needed = history.needed_by(remaining)
    own = history.needed_by(leaving) - needed
    for entry in leaving:
        result.items.append(Deletion(entry.folder, "run", entry.bytes, _about(entry, history)))
    limit = None if wanted.older_than is None else (now - wanted.older_than).timestamp()
    for stage in history.stages:
        if stage.key in own:
            _take(stage, "only the runs above used it", history, result)
        elif (limit is not None and stage.changed >= limit) or not _is_of(stage, wanted, history):
            continue
        elif stage.key not in needed and wanted.unreferenced:
            _take(stage, "no run refers to it", history, result)
        elif wanted.checkpoints and stage.finished:
            _take_checkpoints(stage, history, result)
    if wanted.unreferenced and not wanted.recipes:
        doomed = {item.path for item in result.items}
        left_over = dict.fromkeys(leftovers(runs.root), "half written; its process is gone")
        if not _is_working(runs):
            left_over |= dict.fromkeys((runs.cache / COPIES).glob("[!.]*"), "copy of a data file; nothing runs")
        for path, why in left_over.items():
            if not doomed & set(path.parents):
                size = size_of(path) if path.is_dir() else path.lstat().st_size
                result.items.append(Deletion(path, "leftover", size, why))
    return result


def delete(runs: Runs, chosen: Deletions, report: Callable[[str], None]) -> int:
    """Delete the items, stages under their locks. Return the number of freed bytes; `report` gets the items that could
    not be deleted.

    The remaining runs are read again before each stage is deleted: a stage that a new run needs is kept.
    """
    freed = 0
    doomed = {item.path for item in chosen.items}
    for item in [item for item in chosen.items if item.what == "run"]:
        if is_locked(item.path / LOCK):
            report(f"{_short(item.path)} has begun to run: it stays")
        else:
            freed += _removed(item, runs, report)
    for item in [item for item in chosen.items if item.what == "leftover"]:
        if item.path.parent == runs.cache / COPIES and _is_working(runs):
            report(f"{_short(item.path)} may be read by a run that has begun: it stays")
        else:
            freed += _removed(item, runs, report)
    usage = _Usage(runs)
    for item in [item for item in chosen.items if item.what not in ("run", "leftover")]:
        stage = item.path if item.what == "stage" else item.path.parent
        key = stage.name.rpartition("-")[2]
        lock = runs.stage_lock(key)
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(lock).acquire(timeout=0):
                if item.what == "stage" and key in usage.needed():
                    report(f"{_short(stage)} is used by a run that remains: it stays")
                elif item.what == "checkpoint" and not Stage(stage).has_record:
                    report(f"{_short(stage)} is not finished any more: its checkpoint stays")
                else:
                    freed += _removed(item, runs, report)
        except Timeout:
            report(f"{_short(stage)} is being worked on: it stays")
    for folder in {path.parent for path in doomed if path.parent.parent == runs.root}:
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    return freed


def _removed(item: Deletion, runs: Runs, report: Callable[[str], None]) -> int:
    """Remove a folder or file in a place where fgrl creates such items. Return its bytes. Links inside are removed, and
    not followed.
    """
    path = item.path
    if _is_linked(path, runs):
        report(f"{_short(path)} is a link, or lies behind one: it stays")
        return 0
    if not path.exists():
        return 0
    try:
        if item.what == "stage":
            Stage(path).reject()  # a deletion that is cut off leaves an unfinished stage, and no broken product
        shutil.rmtree(path) if path.is_dir() else remove(path)
    except OSError as error:
        report(f"{_short(path)} could not be deleted: {error.strerror or error}")
        return 0
    return item.bytes


def _is_linked(path: Path, runs: Runs) -> bool:
    """Return True if the path is a link, or is behind a link inside the folder of runs."""
    return path.is_symlink() or any(parent.is_symlink() for parent in path.parents if runs.root in parent.parents)


def _is_working(runs: Runs) -> bool:
    """Return True if a process works on any run of this folder."""
    return any(map(is_locked, runs.root.glob(f"*/*/{LOCK}")))


class _Usage:
    """Stages that the runs need. They are read again when runs were added or removed: the needs of a run are known from
    its start.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._seen: set[Path] | None = None
        self._needed: set[str] = set()

    def needed(self) -> set[str]:
        recipes = [folder for folder in self._runs.root.iterdir() if folder.name not in RESERVED]
        seen = {path for folder in recipes for path in folder.glob(f"*Z-*/{INPUTS}")}
        if seen != self._seen:
            history = History(self._runs)
            self._seen, self._needed = seen, history.needed_by(history.entries)
        return self._needed


def _take(stage: Stage, why: str, history: History, result: Deletions) -> None:
    if is_locked(history.runs.stage_lock(stage.key)):
        result.kept.append(f"{_short(stage.place)} is being worked on")
    elif _is_linked(stage.place, history.runs):
        result.kept.append(f"{_short(stage.place)} lies behind a link")
    else:
        result.items.append(Deletion(stage.place, "stage", stage.bytes, why))


def _take_checkpoints(stage: Stage, history: History, result: Deletions) -> None:
    if is_locked(history.runs.stage_lock(stage.key)):
        return
    for name in NAMES:
        path = stage.place / name
        if path.exists() and not path.is_symlink():
            size = size_of(path) if path.is_dir() else path.stat().st_size
            result.items.append(Deletion(path, "checkpoint", size, "its stage is finished"))


def _is_wanted(entry: Run, wanted: Wanted, now: datetime) -> bool:
    if wanted.recipes and not any(fnmatchcase(entry.name, pattern) for pattern in wanted.recipes):
        return False
    if wanted.older_than is None:
        return True
    return "" < entry.started < (now - wanted.older_than).strftime(TIME)


def _is_of(stage: Stage, wanted: Wanted, history: History) -> bool:
    """Return True if a wanted recipe made or used the stage, or if no recipe is wanted."""
    if not wanted.recipes:
        return True
    recipes = {entry.name for entry in history.entries if stage.key in entry.keys.values()}
    recipes |= {stage.record.recipe} if stage.finished else set()
    return any(fnmatchcase(name, pattern) for name in recipes for pattern in wanted.recipes)


def _check_recipes(history: History, wanted: Wanted) -> None:
    stages = [] if wanted.of_runs else [stage.record.recipe for stage in history.stages if stage.finished]
    known = sorted({*(entry.name for entry in history.entries), *stages})
    for pattern in wanted.recipes:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UsageError(unknown("recorded recipe", pattern, known))


def _about(entry: Run, history: History) -> str:
    return ", ".join(filter(None, [entry.state_now, entry.started[:10], headline(history.used_by(entry))]))


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
