"""The records of a run and of a stage, and the only code that writes and reads their files.

    runs/<recipe>/<UTC>-<short key>/summary.json    `RunRecord`, written again after every stage
    runs/stages/<stage>-<key>/stage.json            `StageRecord`, written last, by rename: unfinished without it
    runs/stages/<stage>-<key>/alarms.json           its alarms, written when they go off, until it is finished

A stage counts as finished while its product is what the record lists. Sizes are compared whenever a record is read,
contents before another stage reads the product and by `fgrl doctor RUNS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import (
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from fgrl.errors import DONE, INTERRUPTED, FgrlError
from fgrl.files import LinkRefused, write_json
from fgrl.models.digests import digest_of_file
from fgrl.results.conclusions import Conclusions
from fgrl.results.reading import read_json
from fgrl.sanitizing import hide_in
from fgrl.types import AlarmRecord, Record

RUN, STAGE, ALARMS = "summary.json", "stage.json", "alarms.json"


class Broken(FgrlError):
    """A stage's folder holds something else than its record says; the message names the file. It counts as
    unfinished.
    """


class Unfinished(Broken):
    """There is no record yet."""


# -- stages ------------------------------------------------------------------------------------------------------------


class ProductFile(Record):
    """A file of a stage's product."""

    bytes: int
    sha256: str


class StageRecord(Record):
    """A finished stage."""

    model_config = ConfigDict(extra="ignore")

    name: str
    key: str
    component: str
    """Name of the stage's component: "finetune", "rl", ..."""
    makes: str = ""
    """Type of the product: "Checkpoint", "Samples", ..."""
    recipe: str
    made: str
    """UTC, as `2026-05-01T09:30:00Z`."""
    seconds: float
    upstream: dict[str, str] = {}
    """Keys of the stages whose products it read, by the names that its settings have for them."""
    summary: dict[str, Any]
    """Report of the stage at its end."""
    identity: dict[str, Any]
    """Content of which its key is the hash."""
    versions: dict[str, str] = {}
    files: dict[str, ProductFile]
    """Files of the product, by relative path."""
    alarms: list[AlarmRecord] | None = None
    """Those of a training, in the order in which they went off; None: nothing watched."""

    @property
    def limit(self) -> int | None:
        """`--limit` of a trial."""
        return self.identity.get("limit")


def write_stage(folder: Path, record: StageRecord) -> None:
    """Let the stage in `folder` count as finished."""
    write_json(folder / STAGE, record.model_dump(), default=str)


def write_alarms(folder: Path, alarms: Sequence[AlarmRecord]) -> None:
    """Put down the alarms of a stage that works in `folder`."""
    write_json(folder / ALARMS, [alarm.model_dump() for alarm in alarms])


def read_alarms(folder: Path) -> list[AlarmRecord] | None:
    """Return the alarms of a stage, finished or not; None where nothing watched, or where they cannot be read."""
    record = find_stage(folder)
    if record is not None:
        return record.alarms
    try:
        return TypeAdapter(list[AlarmRecord]).validate_json((folder / ALARMS).read_bytes())
    except (OSError, ValueError):
        return None


def has_stage(folder: Path) -> bool:
    """Return True if the folder has the record of a stage, whatever state its product is in."""
    return (folder / STAGE).is_file()


def parse_stage(folder: Path) -> StageRecord:
    """Return the record of a stage, without a look at its product. Raises `Broken`."""
    try:
        return StageRecord.model_validate(json.loads((folder / STAGE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise Unfinished(f"{folder.name} has no {STAGE}") from None
    except ValidationError:
        raise Broken(f"{folder.name}/{STAGE} is not the record of a stage") from None
    except (OSError, ValueError) as error:
        raise Broken(f"{folder.name}/{STAGE} cannot be read ({error})") from None


def find_stage(folder: Path) -> StageRecord | None:
    """Return the same, or None where no record can be read."""
    try:
        return parse_stage(folder)
    except Broken:
        return None


def read_stage(folder: Path, key: str | None = None) -> StageRecord:
    """Return the record of a finished stage, after a look at the sizes of its files. Raises `Broken`, also where its
    key is not `key`.
    """
    record = parse_stage(folder)
    if key is not None and record.key != key:
        raise Broken(f"{folder.name}/{STAGE} is the record of another stage, with the key {record.key}")
    _check_files(folder, record, contents=False)
    return record


def is_done(folder: Path, key: str | None = None) -> bool:
    """Return True if the stage (with this key) has finished, and its product has the files and sizes of then."""
    try:
        read_stage(folder, key)
    except Broken:
        return False
    return True


def folder_of(stages: Path, key: str) -> Path | None:
    """Return the folder of the stage with a key, whatever the stage was called; a finished one when there are two."""
    folders = sorted(stages.glob(f"*-{key}"))
    return next((folder for folder in folders if is_done(folder, key)), folders[0] if folders else None)


def check_contents(folder: Path) -> StageRecord:
    """Return the record of a finished stage, after every file was compared with its checksum. Raises `Broken`."""
    record = parse_stage(folder)
    _check_files(folder, record, contents=True)
    return record


def files_of(out: Path) -> dict[str, ProductFile]:
    """Every file in a product folder."""
    return {
        file.relative_to(out).as_posix(): ProductFile(bytes=file.stat().st_size, sha256=digest_of_file(file))
        for file in sorted(out.rglob("*"))
        if file.is_file()
    }


def _check_files(folder: Path, record: StageRecord, *, contents: bool) -> None:
    for name, file in record.files.items():
        place = folder / "out" / name
        size = place.stat().st_size if place.is_file() else None
        if size != file.bytes:
            found = "is gone" if size is None else f"has {size:,} bytes instead of {file.bytes:,}"
            raise Broken(f"{folder.name}/out/{name} {found}")
        if contents and digest_of_file(place) != file.sha256:
            raise Broken(f"{folder.name}/out/{name} has changed since it was written (its sha256 differs)")


def reject(folder: Path) -> None:
    """Let a broken stage count as unfinished from now on. Raises `LinkRefused` behind a link."""
    for place in (folder, folder.parent):
        if place.is_symlink():
            raise LinkRefused(place)
    (folder / STAGE).unlink(missing_ok=True)


def finished_stages(stages: Path) -> Iterator[tuple[Path, StageRecord]]:
    """Yield the folders below `runs/stages/` whose stages have finished, newest first, with their records."""
    done = [folder for folder in stages.glob("*-*") if is_done(folder)]
    for folder in sorted(done, key=lambda folder: (folder / STAGE).stat().st_mtime, reverse=True):
        yield folder, read_stage(folder)


# -- runs --------------------------------------------------------------------------------------------------------------


class Lenient(Record):
    """A record whose damaged parts are the fields' defaults: what failed is shown too. The context's "notes" name
    them.
    """

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError:
            if info.context is None:
                raise
            info.context["notes"].append(f"{RUN}: {info.field_name} cannot be read.")
            return cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)


class UsedStage(Lenient):
    """A stage of a run, which may be from the cache."""

    key: str = ""
    kind: str = ""
    """Name of the stage's component."""
    dir: str = ""
    """Its folder, seen from that of the run."""
    cached: bool = False
    done: bool = False
    why: str = ""
    """Reason for running it, or that it is from the cache."""
    seconds: float | None = None
    summary: dict[str, Any] = {}
    """Report of the stage at its end."""


class RunRecord(Lenient):
    """An invocation, as far as it has come."""

    recipe: str = ""
    path: str = ""
    """The recipe's address, as it was given."""
    about: str = ""
    seed: int = 0
    key: str = ""
    """Eight digits that stand for the keys of all its stages."""
    command: list[str] = []
    sweep: str = ""
    """Name of the folder of the sweep that it belongs to."""
    started: str = ""
    """UTC, as `2026-05-01T09:30:00Z`."""
    finished: str | None = None
    seconds: float | None = None
    exit: int | None = None
    """Exit code; None: it has not ended, or was killed."""
    error: str = ""
    stages: dict[str, UsedStage] = {}
    """Those that it has come to, by name."""
    conclusions: Conclusions | None = None
    """None while it has not ended."""

    @property
    def state(self) -> str:
        """Either "finished", "failed", "interrupted", or "unfinished": it was killed, or works."""
        return {None: "unfinished", DONE: "finished", INTERRUPTED: "interrupted"}.get(self.exit, "failed")


def write_run(folder: Path, record: RunRecord) -> None:
    """Write the record of a run, without secrets."""
    write_json(folder / RUN, hide_in(record.model_dump()), default=str)


def has_run(folder: Path) -> bool:
    """Return True if the folder has the record of a run."""
    return (folder / RUN).is_file()


def read_run(folder: Path, notes: list[str] | None = None) -> RunRecord:
    """Return the record of a run, without secrets; what cannot be read is its default, and noted."""
    notes = [] if notes is None else notes
    content = read_json(folder / RUN, notes, what="the run has not ended, or was killed")
    return RunRecord.model_validate(hide_in(content), context={"notes": notes})
