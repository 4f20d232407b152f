"""A stage on disk, `runs/stages/<stage>-<key>/`: the only reader and writer of its files.

Files are read when they are needed.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from fgrl.base import lazy
from fgrl.base.errors import DataError, UsageError
from fgrl.base.files import LinkRefused, digest_of_file, remove, write_json, write_text
from fgrl.measuring.number_names import METRICS
from fgrl.runs.reading import mapping
from fgrl.runs.records import ALARMS, STAGE, Broken, ProductFile, StageRecord, Unfinished, UsedStage
from fgrl.runs.series import Series, read_series
from fgrl.types import AlarmRecord, Checkpoint

RECIPE = "recipe.yaml"
"""File with the settings in the folder of a stage, and with the recipe in the folder of a run."""
specs = lazy.load("fgrl.kinds.specs")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Stage:
    """A stage, finished or not."""

    folder: Path | None
    """Folder of the stage; None if the stage of a run's recipe has none yet."""
    called: str = ""
    """Its name in the recipe through which it was found."""
    about: str = ""
    """Description of that recipe."""
    used: UsedStage = field(default_factory=UsedStage)
    """Entry about it in the record of the run through which it was found."""
    in_run: str = ""
    """Its state in that run; empty for a stage that was found by its folder."""
    written: dict[str, Any] | None = None
    """Its settings, as that run's recipe has them."""
    step: int | None = None
    """Step of a model that its training stored besides its product, if that model is meant."""
    notes: list[str] = field(default_factory=list)
    """Notes on contents of its log that could not be read."""

    # -- reading ----

    @property
    def place(self) -> Path:
        """Return the folder of the stage, which must have one."""
        assert self.folder is not None
        return self.folder

    @property
    def out(self) -> Path:
        """Return the folder of its product."""
        return self.place / "out"

    @property
    def product(self) -> Path:
        """Return the folder of the product. Raises `UsageError` for a stage that has not finished."""
        if not self.finished:
            raise UsageError(f"stage {self.name} has not finished ({self.state}), so it made nothing yet")
        return self.out

    @property
    def model(self) -> Path:
        """Return the folder of the model that it made."""
        return self.out if self.step is None else self.out / specs.POLICIES / str(self.step)

    @property
    def is_model(self) -> bool:
        """True if it made a model."""
        return (self.model / "fgrl.json").is_file()

    @property
    def head(self) -> str:
        """Return the head of the model that it made: "lm", "scalar" or "token"."""
        return str(mapping(Checkpoint(self.model).about().get("model")).get("head") or "lm")

    @property
    def has_record(self) -> bool:
        """Return True if the folder has the record of a stage, whatever the state of record and product."""
        return self.folder is not None and (self.folder / STAGE).is_file()

    @cached_property
    def record(self) -> StageRecord:
        """Return its record, without a check of its product. Raises `Broken`."""
        name = self.place.name
        try:
            return StageRecord.model_validate(json.loads((self.place / STAGE).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise Unfinished(f"{name} has no {STAGE}") from None
        except ValidationError:
            raise Broken(f"{name}/{STAGE} is not the record of a stage") from None
        except (OSError, ValueError) as error:
            raise Broken(f"{name}/{STAGE} cannot be read ({error})") from None

    @property
    def found(self) -> StageRecord | None:
        """Return its record, or None if it cannot be read."""
        try:
            return None if self.folder is None else self.record
        except Broken:
            return None

    def check(self, key: str | None = None, *, contents: bool = False) -> StageRecord:
        """Return the record of a finished stage, after a check of the sizes of its files. Raises `Broken`, also if its
        key is not `key`. contents: compare every file with its checksum.
        """
        name = self.place.name
        if key is not None and self.record.key != key:
            raise Broken(f"{name}/{STAGE} is the record of another stage, with the key {self.record.key}")
        for inside, file in self.record.files.items():
            place = self.out / inside
            size = place.stat().st_size if place.is_file() else None
            if size != file.bytes:
                found = "is gone" if size is None else f"has {size:,} bytes instead of {file.bytes:,}"
                raise Broken(f"{name}/out/{inside} {found}")
            if contents and digest_of_file(place) != file.sha256:
                raise Broken(f"{name}/out/{inside} has changed since it was written (its sha256 differs)")
        return self.record

    def is_done(self, key: str | None = None) -> bool:
        """Return True if the stage (with this key) has finished, and its product still has the recorded files and
        sizes.
        """
        try:
            self.check(key)
        except Broken:
            return False
        return True

    @property
    def state(self) -> str:
        """Return "done", "cached", "unfinished" (started, without a record), "not started" or "not asked for" (in a run
        that finished).
        """
        return self.in_run or ("unfinished" if self.found is None else "done")

    @property
    def finished(self) -> bool:
        """Return True if it has a record, whatever the state of its product."""
        return self.folder is not None and self.state in ("done", "cached")

    @property
    def measured(self) -> bool:
        """Return True if it has finished and measured numbers."""
        return self.finished and (self.out / METRICS).exists()

    @property
    def name(self) -> str:
        found = self.called or (record.name if (record := self.found) else "")
        return found or self.place.name

    @property
    def key(self) -> str:
        return self.used.key or ("" if self.folder is None else self.folder.name.rpartition("-")[2])

    @property
    def component(self) -> str:
        """Return the name of the stage's component: "finetune", "rl", ..."""
        return self.used.kind or str(self.settings.get("name", ""))

    @property
    def seconds(self) -> float | None:
        return self.used.seconds

    @property
    def summary(self) -> dict[str, Any]:
        """Return the report of the stage at its end."""
        return self.used.summary

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """Return the seed and its settings from its own folder. Raises `DataError`."""
        file = self.place / RECIPE
        try:
            return mapping(yaml.load(file.read_text(encoding="utf-8"), LOADER)) if file.is_file() else {}
        except yaml.YAMLError as error:
            raise DataError(f"{file}: cannot be read: {error}") from None

    @property
    def seed(self) -> int:
        seed = self.recipe.get("seed")
        return seed if isinstance(seed, int) else 0

    @property
    def settings(self) -> dict[str, Any]:
        """Return its settings, as the recipe resolved them; {} if the recipe of a run cannot be parsed."""
        if self.written is not None:
            return self.written
        return mapping(next(iter(mapping(self.recipe.get("stages")).values()), {}))

    @property
    def alarms(self) -> list[AlarmRecord] | None:
        """Return the alarms of a training, finished or not; None if nothing was watched, or if they cannot be read."""
        if (record := self.found) is not None:
            return record.alarms
        try:
            return TypeAdapter(list[AlarmRecord]).validate_json((self.place / ALARMS).read_bytes())
        except (AssertionError, OSError, ValueError):
            return None

    @cached_property
    def series(self) -> list[Series]:
        """Return every metric of its log."""
        return [] if self.folder is None else read_series(self.folder, self.notes, self.name)

    @property
    def logged(self) -> dict[str, Series]:
        """Return the metrics of its log by name."""
        return {series.name: series for series in self.series}

    @cached_property
    def bytes(self) -> int:
        return size_of(self.place)

    @property
    def changed(self) -> float:
        """Return the time when it was last worked on, in seconds since 1970."""
        own = [self.place, *(self.place / name for name in (STAGE, "log.jsonl", "last.ckpt"))]
        return max((path.lstat().st_mtime for path in own if path.exists()), default=0.0)

    def upstream(self) -> dict[str, Path]:
        """Return the products of the stages that it refers to, by their names in its settings, after a comparison with
        their checksums. Raises `DataError`.
        """
        made = {}
        for name, key in self.record.upstream.items():
            stage = find(self.place.resolve().parent, key)
            if stage is None:
                raise DataError(f"stage {self.name} was made with {name}-{key}, whose folder is gone")
            stage.checked("run the stage again")
            made[name] = stage.out
        return made

    def checked(self, remedy: str) -> StageRecord:
        """Return its record, after a comparison of its product with the checksums. Raises `DataError`, whose message
        ends with the remedy.
        """
        try:
            return self.check(contents=True)
        except Broken as broken:
            raise DataError(f"{broken}: {remedy}") from None

    # -- writing ----

    def begin(self, seed: int, settings: Mapping[str, Any]) -> None:
        """Mark it as unfinished, with an empty product, and write its settings."""
        self.reject()
        self.keep_alarms(None)
        if self.out.exists():
            shutil.rmtree(self.out)
        self.out.mkdir(parents=True)
        whole = {"seed": seed, "stages": {self.name: dict(settings)}}
        write_text(self.place / RECIPE, yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=110))

    def finish(self, record: StageRecord) -> None:
        """Mark it as finished."""
        write_json(self.place / STAGE, record.model_dump(), default=str)

    def keep_alarms(self, alarms: Sequence[AlarmRecord] | None) -> None:
        """Write its alarms while it is running; None removes the file."""
        if alarms is None:
            remove(self.place / ALARMS)
        else:
            write_json(self.place / ALARMS, [alarm.model_dump() for alarm in alarms])

    def reject(self) -> None:
        """Mark a broken stage as unfinished. Raises `LinkRefused` behind a link."""
        for place in (self.place, self.place.parent):
            if place.is_symlink():
                raise LinkRefused(place)
        (self.place / STAGE).unlink(missing_ok=True)


def find(stages: Path, key: str) -> Stage | None:
    """Return the stage with a key in `runs/stages`, whatever its name is; a finished stage if there are two."""
    known = [Stage(folder) for folder in sorted(stages.glob(f"*-{key}"))]
    return next((stage for stage in known if stage.is_done(key)), known[0] if known else None)


def finished_stages(stages: Path) -> Iterator[Stage]:
    """Yield the stages in `runs/stages` that have finished, newest first."""
    done = [stage for folder in stages.glob("*-*") if (stage := Stage(folder)).is_done()]
    yield from sorted(done, key=lambda stage: (stage.place / STAGE).stat().st_mtime, reverse=True)


def files_of(out: Path) -> dict[str, ProductFile]:
    """Return every file in a product folder."""
    return {
        file.relative_to(out).as_posix(): ProductFile(bytes=file.stat().st_size, sha256=digest_of_file(file))
        for file in sorted(out.rglob("*"))
        if file.is_file()
    }


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder. Links are not followed; files that are deleted meanwhile count as 0."""
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(place, name))  # noqa: PTH118
            except FileNotFoundError:
                continue
            total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return total
