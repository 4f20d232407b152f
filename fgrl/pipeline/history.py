"""History of a folder of runs: the invocations, the stages that each used, how large they are, and what is being
worked on now.

Reads only small files (records, `metrics.json`), so that hundreds of runs are listed at once. What is missing or
broken leaves a field empty, and never fails the list.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fgrl import files
from fgrl.evaluation.comparison import METRICS
from fgrl.files import LinkRefused
from fgrl.pipeline.folders import RESERVED, Runs
from fgrl.results.evaluations import read_evaluation
from fgrl.results.numbers import Measure
from fgrl.results.reading import mapping, read_json
from fgrl.results.records import RunRecord, read_run
from fgrl.results.stage_folder import StageFolder, size_of

RUNNING = "running"
LOCK = ".running"
"""In the folder of an invocation: held by the process that works on it."""
INPUTS = "inputs.json"
"""In the folder of an invocation, from its start: the keys of its stages, and of the stages whose products they read.
"""


@dataclass
class RunEntry:
    """One invocation."""

    folder: Path
    record: RunRecord
    state: str
    """"running", or what the record says; "unfinished": it was killed."""
    stages: dict[str, str]
    """Keys of its stages by name, in order."""
    done: int
    """Number of finished ones."""
    reads: list[str]
    """Keys that it was planned with, from its start on: of its stages, and of those whose products they read."""
    headline: str
    """The first number of its last evaluation: `rule.kept 0.17 -> 0.55`."""
    bytes: int = 0
    """Bytes of its own folder and of all stages that it used, which other runs may share."""

    @property
    def recipe(self) -> str:
        return self.record.recipe or self.folder.parent.name

    @property
    def started(self) -> str:
        """UTC, as `2026-05-01T09:30:00Z`; of the folder's name where the record is missing."""
        return self.record.started or _time_in(self.folder.name)

    def as_json(self) -> dict[str, Any]:
        own = ("recipe", "started", "state", "stages", "done", "bytes", "headline")
        recorded = self.record.model_dump(include={"path", "seconds", "error"})
        return {"folder": str(self.folder), **recorded, **{name: getattr(self, name) for name in own}}


@dataclass
class History:
    """Everything in a folder of runs."""

    runs: Runs
    stages: dict[str, list[StageFolder]]
    """By key: a stage that was renamed while it was unfinished may have two folders."""
    entries: list[RunEntry]
    """The newest first."""

    @property
    def bytes(self) -> int:
        """Bytes of all stages and of the runs' own folders; a shared stage counts once."""
        return sum(stage.bytes for stage in self.all_stages()) + sum(size_of(entry.folder) for entry in self.entries)

    def all_stages(self) -> Iterator[StageFolder]:
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
                waiting += [above for stage in self.stages.get(key, []) for above in _upstream(stage, self.runs)]
        return needed


def read_history(runs: Runs, *, sizes: bool = True) -> History:
    """Raise `UsageError` when `runs` is a file. sizes: also add up the sizes of files, which takes the longest."""
    runs.check()
    stages: dict[str, list[StageFolder]] = {}
    for folder in sorted(runs.stages.glob("*-*")):
        if not folder.is_symlink() and folder.is_dir():
            stage = StageFolder(folder)
            stages.setdefault(stage.key, []).append(stage)
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
    """Return True if a process holds this lock; False where there is no such file."""
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
    """Return the lock file of a stage."""
    return runs.stages / ".locks" / f"{key}.lock"


def key_in(text: str, runs: Runs) -> str | None:
    """Return the key of the stage in whose folder a path lies; None for any other text. Links, such as those in the
    folder of a run, are followed.
    """
    if "/" not in text or "\n" in text or "\0" in text:
        return None
    place, stages = os.path.realpath(files.expanded(text)), os.path.realpath(runs.stages)
    return Path(place).relative_to(stages).parts[0].rpartition("-")[2] if place.startswith(stages + os.sep) else None


def started_at(entry: RunEntry) -> datetime | None:
    """None for a folder whose name and summary both contain no time."""
    try:
        return datetime.strptime(entry.started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _upstream(stage: StageFolder, runs: Runs) -> Iterator[str]:
    """Keys of the stages whose products it read, and of those that contain the base models of its adapters."""
    if stage.finished:
        yield from stage.record.upstream.values()
    for file in (*stage.out.glob("fgrl.json"), *stage.out.glob("*/fgrl.json"), *stage.out.glob("*/*/fgrl.json")):
        base = mapping(mapping(read_json(file, []).get("model")).get("base"))
        if base.get("local"):
            for place in (str(base.get("name") or ""), str(file.parent / str(base.get("relative") or ""))):
                if key := key_in(place, runs):
                    yield key


def _entry(folder: Path, history: History) -> RunEntry:
    record = read_run(folder)
    keys = {name: stage.key for name, stage in record.stages.items()}
    for name, key in _linked(folder):
        keys.setdefault(name, key)
    finished = [stage for key in keys.values() for stage in history.stages.get(key, []) if stage.finished]
    return RunEntry(
        folder=folder,
        record=record,
        state=_state(folder, record, history.runs),
        stages=keys,
        done=sum(any(stage.finished for stage in history.stages.get(key, [])) for key in keys.values()),
        reads=list(_planned(folder)),
        headline=_headline(finished),
    )


def _planned(folder: Path) -> Iterator[str]:
    """Yield the keys in `inputs.json`."""
    content = read_json(folder / INPUTS, []) if (folder / INPUTS).exists() else {}
    planned = mapping(content.get("keys"))
    yield from map(str, planned.values())
    for name in planned:
        read = mapping(mapping(content.get("stages")).get(name))
        yield from (str(place["product"]) for place in read.values() if "product" in mapping(place))
    named = content.get("named")
    yield from map(str, named if isinstance(named, list) else [])


def _linked(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and keys of the stages that the folder has links to, also where the summary is gone."""
    inside = folder / "stages"
    if inside.is_dir():
        for link in sorted(inside.iterdir()):
            if link.is_symlink():
                yield link.name, link.readlink().name.rpartition("-")[2]


def _state(folder: Path, record: RunRecord, runs: Runs) -> str:
    if record.exit is None:
        unfinished = [stage.key for stage in record.stages.values() if not stage.done]
        if any(map(is_locked, [folder / LOCK, *(stage_lock(runs, key) for key in unfinished)])):
            return RUNNING
    return record.state


def _time_in(name: str) -> str:
    """Return the time in `20260501T093000Z-3fa9c1d2`."""
    stamp = name.partition("-")[0]
    try:
        return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return ""


def _headline(stages: list[StageFolder]) -> str:
    """Return the first number of the last stage that measured something."""
    for stage in reversed(stages):
        if (stage.out / METRICS).exists():
            measures = read_evaluation(stage.out, []).measures
            if measures:
                return _in_words(measures[0])
    return ""


def _in_words(measure: Measure) -> str:
    """`rule.kept 0.17 -> 0.55`: the baseline's value, then that of the last model."""
    values = [number.value.mean for number in measure.models]
    texts = ["missing" if value is None else f"{value:.3g}" for value in values]
    return f"{measure.name} {' -> '.join(dict.fromkeys([texts[0], texts[-1]]) if len(texts) > 1 else texts)}"
