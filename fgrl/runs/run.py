"""A run on disk, `runs/<recipe>/<UTC>-<short key>/`: the only reader and writer of its files.

Files are read when they are needed. A missing or broken file becomes a note, never an exception: a page about a failed
run must not fail too. Secrets that an earlier version wrote there are left out, and hidden from then on.
"""

from __future__ import annotations

import glob
import shlex
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from fgrl.base.files import write_json, write_text
from fgrl.base.sanitizing import hide, hide_in, remember
from fgrl.runs.folders import LOCK, STAMP, TIME, Runs, is_locked
from fgrl.runs.reading import mapping, read_json
from fgrl.runs.records import RUN, Broken, RunRecord, Unfinished, UsedStage
from fgrl.runs.stage import LOADER, RECIPE, Stage, size_of

INPUTS = "inputs.json"
"""File with the keys of a run's stages, and of the stages whose products they read. It is written when the run starts."""
LOG_LINES = 30
RUNNING = "running"


class Run:
    """A run of a recipe."""

    _stages_are: type[Stage] = Stage

    command = ""
    """Command that runs it, if a recipe was named; empty for the folder of a run."""
    overrides: Sequence[str] = ()
    """Overrides of the command."""
    address = ""
    """Address of the named recipe."""

    def __init__(self, folder: Path, *, quick: bool = False) -> None:
        """Open a run. quick: for lists of many runs; its record is read without its recipe, so that the recipe's
        secrets are not known.
        """
        self.folder, self.quick = folder, quick
        self._lock: FileLock | None = None
        self.notes: list[str] = []
        """Notes on contents of the read files that could not be read."""
        self.damage: list[str] = []
        """Notes on contents of its record that could not be read."""

    # -- reading ----

    @cached_property
    def written_text(self) -> str:
        try:
            return (self.folder / RECIPE).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            self.notes.append(f"{RECIPE} cannot be read ({error.strerror}).")
            return ""

    @cached_property
    def written(self) -> dict[str, Any]:
        """Return the recipe as plain data, as it was written, for comparisons and not for display."""
        try:
            return mapping(yaml.load(self.written_text, LOADER))
        except (yaml.YAMLError, RecursionError) as error:
            self.notes.append(f"{RECIPE} could not be parsed ({type(error).__name__}); it is shown as it is.")
            return {}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the recipe as plain data, with everything that it extends and all overrides; {} if it cannot be
        parsed.
        """
        remember(self.written)
        return mapping(hide_in(self.written))

    @property
    def text(self) -> str:
        """Return the text of its recipe."""
        _ = self.settings  # its secrets are known before it is shown
        return hide(self.written_text)

    @cached_property
    def record(self) -> RunRecord:
        """Return its record; fields that cannot be read have their defaults."""
        settings = {} if self.quick else self.settings
        content = read_json(self.folder / RUN, self.damage, what="the run has not ended, or was killed")
        record = RunRecord.model_validate(hide_in(content), context={"notes": self.damage})
        self.notes += self.damage
        place = self.folder.resolve()
        record.recipe = record.recipe or place.parent.name
        record.key = record.key or place.name.rpartition("-")[2]
        record.about = record.about or str(settings.get("about") or "")
        return record

    @property
    def has_record(self) -> bool:
        return (self.folder / RUN).is_file()

    @property
    def name(self) -> str:
        """Return the name of the recipe."""
        return self.record.recipe

    @property
    def seed(self) -> int:
        seed = self.settings.get("seed", 0)
        return seed if isinstance(seed, int) else 0

    @property
    def state(self) -> str:
        """Return "finished", "failed", "interrupted" or "unfinished"."""
        return self.record.state

    @property
    def error(self) -> str:
        """Return the reason for the failure; empty if there is none."""
        return self.record.error

    @property
    def state_now(self) -> str:
        """Return its state; "running" while a process works on it or on one of its stages."""
        if self.record.exit is None:
            unfinished = [self.runs.stage_lock(used.key) for used in self.record.stages.values() if not used.done]
            if any(map(is_locked, [self.folder / LOCK, *unfinished])):
                return RUNNING
        return self.state

    @property
    def runs(self) -> Runs:
        """Return the folder of runs that contains it."""
        return Runs(self.folder.resolve().parent.parent)

    @property
    def started(self) -> str:
        """Return the UTC time, as `2026-05-01T09:30:00Z`; from the folder's name if the record has no time, empty
        without both.
        """
        for text, form in ((self.record.started, TIME), (self.folder.name.partition("-")[0], STAMP)):
            with suppress(ValueError):
                return datetime.strptime(text, form).strftime(TIME)
        return ""

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """Return its stages by name: those of the recipe, then other stages of the record."""
        written = mapping(self.settings.get("stages"))
        names = dict.fromkeys([*written, *self.record.stages])
        return {name: self._stage(name, mapping(written.get(name))) for name in names}

    @property
    def finished(self) -> dict[str, Stage]:
        """Return its finished stages by name, including broken ones, whose products raise an error."""
        return {name: stage for name, stage in self.stages.items() if stage.finished}

    @property
    def measured(self) -> dict[str, Stage]:
        """Return its finished stages that measured numbers, by name."""
        return {name: stage for name, stage in self.stages.items() if stage.measured}

    @property
    def with_defaults(self) -> Mapping[str, Any]:
        """Return settings of its stages, with their defaults if a recipe was named."""
        return mapping(self.settings.get("stages"))

    @property
    def waiting(self) -> list[str]:
        """Return the stages that would measure numbers and have not finished, if a recipe was named."""
        return []

    def other_settings(self) -> list[str]:
        """Return the overrides of the newest runs of this recipe with other settings, if the recipe was named."""
        return []

    def with_other_settings(self) -> str:
        """Return a sentence with the command for the settings that have run instead of these; empty if none have run."""
        asked = [word for word in sys.argv[1:] if word not in self.overrides]
        typed = asked if Path(sys.argv[0]).name in ("fgrl", "__main__.py") else ["table", self.address]
        others = " or ".join(f"{shlex.join(['fgrl', *typed])} {words}" for words in self.other_settings())
        return f"{self.name} has run with other settings: {others}" if others else ""

    @cached_property
    def keys(self) -> dict[str, str]:
        """Return the keys of its stages by name. If the record is missing, they are taken from the linked folders."""
        keys = {name: used.key for name, used in self.record.stages.items()}
        inside = self.folder / "stages"
        for link in sorted(inside.iterdir()) if inside.is_dir() else ():
            if link.is_symlink():
                keys.setdefault(link.name, link.readlink().name.rpartition("-")[2])
        return keys

    @property
    def reads(self) -> Iterator[str]:
        """Yield the keys with which it was planned, known from its start: of its stages, and of the stages whose
        products they read.
        """
        content = self.inputs
        planned = mapping(content.get("keys"))
        yield from map(str, planned.values())
        for name in planned:
            read = mapping(mapping(content.get("stages")).get(name))
            yield from (str(place["product"]) for place in read.values() if "product" in mapping(place))
        named = content.get("named")
        yield from map(str, named if isinstance(named, list) else [])

    @cached_property
    def origins(self) -> dict[str, Any]:
        """Return the origin of each value of the recipe."""
        return self._json("origins.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        _ = self.settings  # its secrets are known before anything is shown
        return mapping(hide_in(read_json(self.folder / "environment.json", self.notes)))

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Return the data and models that the run read, with their hashes."""
        return self._json(INPUTS)

    @cached_property
    def log(self) -> list[str]:
        """Return the last lines of `run.log`."""
        _, path = self.settings, self.folder / "run.log"
        if not path.exists():
            return []
        with path.open(encoding="utf-8", errors="replace") as file:
            return [hide(line.rstrip("\n")) for line in deque(file, maxlen=LOG_LINES)]

    def read(self) -> None:
        """Read all these files, so that `notes` are complete."""
        for stage in self.stages.values():
            _ = stage.series
            self.notes += stage.notes
        _ = self.origins, self.environment, self.inputs

    @cached_property
    def bytes(self) -> int:
        """Return the bytes of its own folder."""
        return size_of(self.folder)

    # -- writing ----

    @classmethod
    def begin(
        cls,
        runs: Runs,
        record: RunRecord,
        recipe: str,
        inputs: Mapping[str, Any],
        origins: Mapping[str, str],
        environment: Mapping[str, Any],
        texts: Iterable[str],
    ) -> Run:
        """Create the folder of a run that starts now, write the request and the environment, and lock the folder until
        `end`.

        texts: texts in the settings; the stages in whose folders these paths are count as in use ("named").
        """
        named = sorted({key for text in texts if (key := runs.key_in(text))})
        run = cls(runs.new_invocation(record.recipe, record.key))
        run._lock = FileLock(run.folder / LOCK)
        run._lock.acquire(timeout=0)
        files = {
            INPUTS: {**inputs, "named": named},  # first: the stages are in use
            "origins.json": origins,
            "environment.json": hide_in(environment),
            RUN: hide_in(record.model_dump()),
        }
        for name, content in files.items():
            write_json(run.folder / name, content, default=str)
        write_text(run.folder / RECIPE, recipe)
        (run.folder / "stages").mkdir()
        return run

    def end(self) -> None:
        """Release the folder of a run that this process started."""
        if self._lock is not None:
            self._lock.release()
            (self.folder / LOCK).unlink(missing_ok=True)

    def write(self, record: RunRecord) -> None:
        """Write its record, without secrets."""
        write_json(self.folder / RUN, hide_in(record.model_dump()), default=str)

    # -- parts ----

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return read_json(path, self.notes) if path.exists() else {}

    def _stage(self, name: str, settings: dict[str, Any]) -> Stage:
        used = self.record.stages.get(name, UsedStage())
        place = self._place(name, used)
        stage = self._stages_are(place, name, self.record.about, used, written=settings)
        if name in self.record.stages and place is None:
            where = used.dir or f"runs/stages/{name}-{used.key}"
            self.notes.append(f"{name}: its folder does not exist ({where}).")
        if used.cached:
            stage.in_run = "cached"
        elif place is None:
            stage.in_run = "not asked for" if self.state == "finished" else "not started"
        else:
            try:
                _ = stage.record
                stage.in_run = "done"
            except Broken as broken:
                stage.in_run = "unfinished"
                if not isinstance(broken, Unfinished):
                    self.notes.append(f"{broken}.")
        return stage

    def _place(self, name: str, used: UsedStage) -> Path | None:
        """Return a stage's folder: as in the record, or by the layout of `runs/`."""
        stages = self.runs.stages
        tries = [self.folder / used.dir] if used.dir and "\0" not in used.dir else []
        if used.key:
            tries += [stages / f"{name}-{used.key}", *sorted(stages.glob(f"*-{glob.escape(used.key)}"))]
        return next((path.resolve() for path in tries if path.is_dir()), None)
