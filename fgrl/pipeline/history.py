"""What ran in a folder of runs: the invocations, the stages that each used, how large they are, and what is being worked on now.

Reads only small files (`summary.json`, `stage.json`, `metrics.json`), so that hundreds of runs are listed at once. What is missing or
broken leaves a field empty, and never fails the list.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fgrl import files
from fgrl.files import LinkRefused
from fgrl.pipeline.folders import RESERVED, Runs
from fgrl.pipeline.integrity import RECORD
from fgrl.results.evaluations import METRICS, read_evaluation
from fgrl.results.numbers import Measure
from fgrl.results.reading import finite, mapping, read_json
from fgrl.results.run_folder import EXIT_STATES

RUNNING = "running"
LOCK = ".running"
"""In the folder of an invocation: held by the process that works on it."""
INPUTS = "inputs.json"
"""In the folder of an invocation, from its start: the keys of its stages, and of the stages whose products they read."""


@dataclass
class StageEntry:
    """A folder below `runs/stages/`."""

    folder: Path
    key: str
    record: dict[str, Any]
    """`stage.json`; empty for an unfinished stage."""
    runs: Runs
    """The folder of runs that it belongs to."""

    @property
    def finished(self) -> bool:
        return bool(self.record)

    @property
    def upstream(self) -> list[str]:
        """Keys of the stages whose products it read, and of those that contain the base models of its adapters."""
        return [str(key) for key in mapping(self.record.get("upstream")).values()] + list(self._bases())

    def _bases(self) -> Iterator[str]:
        out = self.folder / "out"
        for file in (*out.glob("fgrl.json"), *out.glob("*/fgrl.json"), *out.glob("*/*/fgrl.json")):
            base = mapping(mapping(read_json(file, []).get("model")).get("base"))
            if base.get("local"):
                for place in (str(base.get("name") or ""), str(file.parent / str(base.get("relative") or ""))):
                    if key := key_in(place, self.runs):
                        yield key

    @cached_property
    def bytes(self) -> int:
        return size_of(self.folder)

    @property
    def changed(self) -> float:
        """When it was last worked on, in seconds since 1970."""
        own = [self.folder, *(self.folder / name for name in (RECORD, "log.jsonl", "last.ckpt"))]
        return max((path.lstat().st_mtime for path in own if path.exists()), default=0.0)


@dataclass
class RunEntry:
    """One invocation."""

    folder: Path
    recipe: str
    path: str
    """The recipe's address, as it was given."""
    started: str
    """UTC, as `2026-05-01T09:30:00Z`; of the folder's name where the summary is missing."""
    seconds: float | None
    state: str
    """"running", "finished", "failed", "interrupted", or "unfinished": it was killed."""
    error: str
    stages: dict[str, str]
    """Keys of its stages by name, in order."""
    done: int
    """How many of them are finished."""
    bytes: int = 0
    """Of its own folder and of all stages that it used, which other runs may share."""
    reads: list[str] = field(default_factory=list)
    """Keys that it was planned with, from its start on: of its stages, and of those whose products they read."""
    headline: str = ""
    """The first number of its last evaluation: `rule.kept 0.17 -> 0.55`."""
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "recipe": self.recipe,
            "path": self.path,
            "started": self.started,
            "seconds": self.seconds,
            "state": self.state,
            "error": self.error,
            "stages": self.stages,
            "done": self.done,
            "bytes": self.bytes,
            "headline": self.headline,
        }


@dataclass
class History:
    """Everything in a folder of runs."""

    runs: Runs
    stages: dict[str, list[StageEntry]]
    """By key: a stage that was renamed while it was unfinished may have two folders."""
    entries: list[RunEntry]
    """The newest first."""

    @property
    def bytes(self) -> int:
        """Of all stages and of the runs' own folders; a shared stage counts once."""
        return sum(stage.bytes for stage in self.all_stages()) + sum(size_of(entry.folder) for entry in self.entries)

    def all_stages(self) -> Iterator[StageEntry]:
        for folders in self.stages.values():
            yield from folders

    def needed_by(self, entries: Iterable[RunEntry]) -> set[str]:
        """Keys of the stages that these runs used or will use, and of the stages whose products those read."""
        needed: set[str] = set()
        waiting = [key for entry in entries for key in (*entry.stages.values(), *entry.reads)]
        while waiting:
            key = waiting.pop()
            if key not in needed:
                needed.add(key)
                waiting += [above for stage in self.stages.get(key, []) for above in stage.upstream]
        return needed


def read_history(runs: Runs, *, sizes: bool = True) -> History:
    """Raises `UsageError` when `runs` is a file. sizes: also add up the sizes of files, which takes the longest."""
    runs.check()
    stages: dict[str, list[StageEntry]] = {}
    for folder in sorted(runs.stages.glob("*-*")):
        if not folder.is_symlink() and folder.is_dir():
            key = folder.name.rpartition("-")[2]
            stages.setdefault(key, []).append(StageEntry(folder, key, _record(folder), runs))
    history = History(runs, stages, [])
    folders = [
        folder
        for folder in runs.root.glob("*/*Z-*")
        if folder.parent.name not in RESERVED and not folder.is_symlink() and folder.is_dir()
    ]
    for folder in sorted(folders, key=lambda folder: folder.name, reverse=True):
        entry = _entry(folder, history)
        if sizes:
            used = [stage for key in entry.stages.values() for stage in stages.get(key, [])]
            entry.bytes = size_of(folder) + sum(stage.bytes for stage in used)
        history.entries.append(entry)
    return history


def is_locked(lock: Path) -> bool:
    """Does a process hold this lock? False where there is no such file."""
    if lock.is_symlink():
        raise LinkRefused(lock)
    if not lock.exists():
        return False
    try:
        with FileLock(lock).acquire(timeout=0):
            return False
    except Timeout:
        return True


def stage_lock(runs: Runs, key: str) -> Path:
    return runs.stages / ".locks" / f"{key}.lock"


def key_in(text: str, runs: Runs) -> str | None:
    """The key of the stage in whose folder a path lies; None for any other text. Links, such as those in the folder of a run, are
    followed."""
    if "/" not in text or "\n" in text or "\0" in text:
        return None
    place, stages = os.path.realpath(files.expanded(text)), os.path.realpath(runs.stages)
    return Path(place).relative_to(stages).parts[0].rpartition("-")[2] if place.startswith(stages + os.sep) else None


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder. Links are not followed; what vanishes meanwhile counts as nothing."""
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(place, name))  # noqa: PTH118
            except FileNotFoundError:
                continue
            total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return total


def started_at(entry: RunEntry) -> datetime | None:
    """None for a folder whose name and summary both contain no time."""
    try:
        return datetime.strptime(entry.started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _entry(folder: Path, history: History) -> RunEntry:
    notes: list[str] = []
    summary = read_json(folder / "summary.json", notes)
    recorded = {name: mapping(stage) for name, stage in mapping(summary.get("stages")).items()}
    keys = {name: str(stage.get("key") or "") for name, stage in recorded.items()}
    for name, key in _linked(folder):
        keys.setdefault(name, key)
    finished = [name for name, key in keys.items() if any(stage.finished for stage in history.stages.get(key, []))]
    return RunEntry(
        folder=folder,
        recipe=str(summary.get("recipe") or folder.parent.name),
        path=str(summary.get("path") or ""),
        started=str(summary.get("started") or _time_in(folder.name)),
        seconds=finite(summary.get("seconds")),
        state=_state(folder, summary, keys, history.runs),
        error=str(summary.get("error") or ""),
        stages=keys,
        done=len(finished),
        reads=list(_planned(folder)),
        headline=_headline([stage for name in finished for stage in history.stages[keys[name]] if stage.finished]),
        notes=notes,
    )


def _planned(folder: Path) -> Iterator[str]:
    """The keys in `inputs.json`. That of an earlier version has no "keys": then what any stage of the recipe reads."""
    content = read_json(folder / INPUTS, []) if (folder / INPUTS).exists() else {}
    planned, stages = content.get("keys"), mapping(content.get("stages"))
    if isinstance(planned, dict):
        yield from map(str, planned.values())
    for name, read in stages.items():
        if not isinstance(planned, dict) or name in planned:
            yield from (str(place["product"]) for place in mapping(read).values() if "product" in mapping(place))
    named = content.get("named")
    yield from map(str, named if isinstance(named, list) else [])


def _linked(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and keys of the stages that the folder has links to, also where the summary is gone."""
    inside = folder / "stages"
    if inside.is_dir():
        for link in sorted(inside.iterdir()):
            if link.is_symlink():
                yield link.name, link.readlink().name.rpartition("-")[2]


def _state(folder: Path, summary: Mapping[str, Any], keys: Mapping[str, str], runs: Runs) -> str:
    code = summary.get("exit")
    if code is None:
        unfinished = [keys[name] for name, stage in mapping(summary.get("stages")).items() if not stage.get("done")]
        locks = [folder / LOCK, *(stage_lock(runs, key) for key in unfinished)]
        if any(map(is_locked, locks)):
            return RUNNING
    return EXIT_STATES.get(code if isinstance(code, int) else None, "failed")


def _time_in(name: str) -> str:
    """Of `20260501T093000Z-3fa9c1d2`."""
    stamp = name.partition("-")[0]
    try:
        return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return ""


def _record(folder: Path) -> dict[str, Any]:
    return read_json(folder / RECORD, []) if (folder / RECORD).exists() else {}


def _headline(stages: list[StageEntry]) -> str:
    """Of the last stage that measured something."""
    for stage in reversed(stages):
        if (stage.folder / "out" / METRICS).exists():
            measures = read_evaluation(stage.folder, []).measures
            if measures:
                return _in_words(measures[0])
    return ""


def _in_words(measure: Measure) -> str:
    """`rule.kept 0.17 -> 0.55`: the baseline's value, then that of the last model."""
    values = [number.value.mean for number in measure.models]
    texts = ["missing" if value is None else f"{value:.3g}" for value in values]
    return f"{measure.name} {' -> '.join(dict.fromkeys([texts[0], texts[-1]]) if len(texts) > 1 else texts)}"
