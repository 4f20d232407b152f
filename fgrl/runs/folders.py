"""The layout of a folder of runs.

    runs/stages/<stage>-<key>/          one stage: recipe.yaml, out/, last.ckpt, log.jsonl, metrics.csv, stage.json
    runs/stages/.locks/<key>.lock       held while a process works on the stage
    runs/cache/                         files named by a hash of what they were computed from
    runs/<recipe>/<UTC>-<short key>/    one invocation: recipe.yaml, origins.json, environment.json, stages/ (links),
                                        summary.json, report.html, run.log

`stage.json` is written last, by rename: a stage folder without it, or with other files than it lists, is unfinished
work.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from fgrl.base.errors import UsageError, disk_error
from fgrl.base.files import LinkRefused, leftovers, refuse_links, remove, write_text
from fgrl.runs.stage import Stage, find

RESERVED = ("stages", "cache", "sweeps")
LOCK = ".running"
"""File in the folder of a run whose lock is held by the process that works on it."""
TIME, STAMP = "%Y-%m-%dT%H:%M:%SZ", "%Y%m%dT%H%M%SZ"
"""Formats of UTC times, to the second: in records, and in the names of folders."""


def now() -> str:
    """Return the time in UTC, to the second: `2026-05-01T09:30:00Z`."""
    return datetime.now(UTC).strftime(TIME)


def newest_first(runs: Iterable[Path]) -> list[Path]:
    """Return folders of runs, sorted by the times in their names, newest first. Of folders with the same second, the
    one that was changed last comes first.
    """
    return sorted(runs, key=lambda run: (run.name.partition("-")[0], run.lstat().st_mtime_ns), reverse=True)


@dataclass(frozen=True)
class Runs:
    """A `runs` folder."""

    root: Path

    def check(self) -> None:
        """Raise `UsageError` if the folder, or a folder above it, is a file."""
        try:
            existing = next(path for path in (self.root, *self.root.absolute().parents) if path.exists())
        except (OSError, ValueError) as error:  # a name too long, a circle of links, a NUL
            raise UsageError(
                f"--runs {str(self.root)[:200]}: {getattr(error, 'strerror', error)}: name another folder"
            ) from None
        if not existing.is_dir():
            raise UsageError(f"--runs {self.root}: {existing} is a file, and runs are kept in a folder")

    def take(self, folder: Path) -> None:
        """Make sure that a stage's folder, whose lock this process holds, belongs to fgrl, and remove incomplete files
        of a killed process. Raises `LinkRefused`.
        """
        refuse_links(folder, self.root)
        for left in leftovers(folder, idle=0):
            remove(left)

    @property
    def stages(self) -> Path:
        return self.root / "stages"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def find(self, key: str) -> Stage | None:
        """Return the stage with a key, whatever its name is; a finished stage if there are two."""
        return find(self.stages, key)

    def stage_lock(self, key: str) -> Path:
        """Return the lock file of a stage."""
        return self.stages / ".locks" / f"{key}.lock"

    def key_in(self, text: str) -> str | None:
        """Return the key of the stage in whose folder a path is, or None for any other text. Links, such as those in
        the folder of a run, are followed.
        """
        if "/" not in text or "\n" in text or "\0" in text:
            return None
        place = os.path.realpath(os.path.expanduser(text))  # noqa: PTH111  (Path.expanduser raises for an unknown home)
        stages = os.path.realpath(self.stages)
        return (
            Path(place).relative_to(stages).parts[0].rpartition("-")[2] if place.startswith(stages + os.sep) else None
        )

    def invocations(self, recipe: str) -> list[Path]:
        """Return the invocation folders of a recipe, newest first."""
        return newest_first(folder for folder in (self.root / recipe).glob("*Z-*") if folder.is_dir())

    def every_invocation(self) -> list[Path]:
        """Return the invocation folders of all recipes, newest first."""
        known = (folder for folder in self.root.glob("*/*Z-*") if folder.is_dir())
        return newest_first(folder for folder in known if folder.parent.name not in RESERVED)

    def new_invocation(self, recipe: str, short: str) -> Path:
        """Create `runs/<recipe>/<UTC>-<short key>/`; two in one second get different names. Incomplete files of killed
        processes in earlier folders and in the cache are removed. Raises `LinkRefused`.
        """
        if (self.root / recipe).is_symlink():
            raise LinkRefused(self.root / recipe)
        for left in (*leftovers(self.root / recipe), *leftovers(self.cache)):
            remove(left)
        stamp = datetime.now(UTC).strftime(STAMP)
        for suffix in ("", *(f".{number}" for number in range(2, 1000))):
            folder = self.root / recipe / f"{stamp}-{short}{suffix}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise disk_error(error) or UsageError(
                    f"--runs {self.root}: no folder can be made there ({error.strerror}): name another one"
                ) from None
            return folder
        raise RuntimeError(f"a thousand runs of {recipe} in one second")

    @contextmanager
    def lock(self, key: str, waiting: Callable[[str], None], leave: Callable[[], bool]) -> Iterator[bool]:
        """Hold the lock of a stage. While another process holds it, `waiting` is called once with a description of that
        process.

        Yields False, without the lock, when `leave()` returns true while waiting. The lock ends with its process, so
        nothing has to be removed after a SIGKILL.
        """
        file = self.stage_lock(key)
        refuse_links(file.parent, self.root)
        file.parent.mkdir(parents=True, exist_ok=True)
        lock, owner = FileLock(file), file.with_suffix(".owner")
        reported = False
        while True:
            try:
                lock.acquire(timeout=0)
                break
            except Timeout:
                if not reported:
                    waiting(owner.read_text(encoding="utf-8") if owner.exists() else "another process")
                    reported = True
                if leave():
                    yield False
                    return
                time.sleep(0.2)
        try:
            write_text(owner, f"process {os.getpid()} on {socket.gethostname()} since {now()}")
            yield True
        finally:
            lock.release()


def is_locked(lock: Path) -> bool:
    """Return True if a process holds this lock; False if there is no such file."""
    if lock.is_symlink():
        raise LinkRefused(lock)
    if not lock.exists():
        return False
    try:
        with FileLock(lock).acquire(timeout=0):
            return False
    except Timeout:
        return True
