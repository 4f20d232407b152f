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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from fgrl.errors import UsageError, disk_error
from fgrl.files import LinkRefused, leftovers, refuse_links, remove, write_text
from fgrl.recipe import Address
from fgrl.results.records import folder_of

RESERVED = ("stages", "cache", "sweeps")


def now() -> str:
    """UTC, to the second: `2026-05-01T09:30:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Runs:
    """A `runs` folder."""

    root: Path

    def check(self) -> None:
        """Raise `UsageError` where the folder, or one above it, is a file."""
        try:
            existing = next(path for path in (self.root, *self.root.absolute().parents) if path.exists())
        except (OSError, ValueError) as error:  # a name too long, a circle of links, a NUL
            raise UsageError(
                f"--runs {str(self.root)[:200]}: {getattr(error, 'strerror', error)}: name another folder"
            ) from None
        if not existing.is_dir():
            raise UsageError(f"--runs {self.root}: {existing} is a file, and runs are kept in a folder")

    def take(self, folder: Path) -> None:
        """Make sure that a stage's folder, whose lock this process holds, is fgrl's own, and remove what a killed
        process left half written in it. Raises `LinkRefused`.
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

    def find(self, key: str) -> Path | None:
        """Return the stage folder of a key, whatever its stage was called; a finished one when there are two."""
        return folder_of(self.stages, key)

    def invocations(self, recipe: str) -> list[Path]:
        """Invocation folders of a recipe, newest first."""
        folders = [folder for folder in (self.root / recipe).glob("*Z-*") if folder.is_dir()]
        return sorted(folders, key=lambda folder: folder.name, reverse=True)

    def new_invocation(self, recipe: str, short: str) -> Path:
        """Make `runs/<recipe>/<UTC>-<short key>/`; two in one second get different names. What killed processes left
        half written in earlier ones and in the cache is removed. Raises `LinkRefused`.
        """
        if (self.root / recipe).is_symlink():
            raise LinkRefused(self.root / recipe)
        for left in (*leftovers(self.root / recipe), *leftovers(self.cache)):
            remove(left)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
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
        """Hold the lock of a stage. While another process has it, `waiting` is called once with who that is.

        Gives False, without the lock, when `leave()` turns true while waiting. The lock dies with its process, so
        nothing is left to clean up after a SIGKILL.
        """
        folder = self.stages / ".locks"
        refuse_links(folder, self.root)
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{key}.lock")
        owner = folder / f"{key}.owner"
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


def recipe_name(address: Path | str) -> str:
    """Return a recipe's folder below `runs/`: its place below the nearest folder called `recipes`, else its file name.

    `recipes/small/dpo.yaml` is `small-dpo`, `dpo.yaml` is `dpo`, and its row `dpo.yaml::phi3` is `dpo-phi3`. It never
    begins with a dot: `...yaml` would lie beside the runs folder.
    """
    recipe = Address.parse(address)
    file = recipe.file.resolve()
    above = file.parent.parts
    first = len(above) - above[::-1].index("recipes") if "recipes" in above else len(above)
    rows = [] if recipe.row is None else [recipe.row.replace("/", "-")]
    name = "-".join([*above[first:], file.stem, *rows]).lstrip(".-") or "recipe"
    return f"{name}-recipe" if name in RESERVED else name
