"""Is a finished stage still what its `stage.json` vouches for?

The record lists size and sha256 of every file of the product. Sizes are compared whenever a stage is looked up, contents
before another stage reads the product and by `fgrl doctor RUNS`. Records of earlier versions list no files: theirs are taken
as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fgrl.errors import FgrlError
from fgrl.files import LinkRefused
from fgrl.models.digests import digest_of_file

RECORD = "stage.json"
NEEDED = ("name", "key", "component", "recipe", "made", "seconds", "summary", "identity")
"""What other parts of the pipeline read of a record."""


class Broken(FgrlError):
    """A stage's folder holds something else than its record says; the message names the file. It counts as unfinished."""


class Unfinished(Broken):
    """There is no record yet."""


def files_of(out: Path) -> dict[str, dict[str, Any]]:
    """By relative path the size and sha256 of every file in a product folder."""
    return {
        file.relative_to(out).as_posix(): {"bytes": file.stat().st_size, "sha256": digest_of_file(file)}
        for file in sorted(out.rglob("*"))
        if file.is_file()
    }


def problem(folder: Path, key: str) -> str:
    """Why the folder of the stage with this key does not count as finished; empty where it does."""
    try:
        read_record(folder, key)
    except Unfinished:
        return "started, not finished: continues from its checkpoint"
    except Broken as broken:
        return f"{broken}: runs again"
    return ""


def read_record(folder: Path, key: str | None = None) -> dict[str, Any]:
    """The record of a finished stage, after a look at the sizes of its files. Raises `Broken`, also where its key is not `key`."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Unfinished(f"{folder.name} has no {RECORD}") from None
    except (OSError, ValueError) as error:
        raise Broken(f"{folder.name}/{RECORD} cannot be read ({error})") from None
    if not isinstance(record, dict) or any(name not in record for name in NEEDED):
        raise Broken(f"{folder.name}/{RECORD} is not the record of a stage")
    if key is not None and record["key"] != key:
        raise Broken(f"{folder.name}/{RECORD} is the record of another stage, with the key {record['key']}")
    check_files(folder, record, contents=False)
    return record


def check_contents(folder: Path) -> None:
    """Compare every file of a finished stage with its checksum. Raises `Broken`."""
    check_files(folder, read_record(folder), contents=True)


def check_files(folder: Path, record: Mapping[str, Any], *, contents: bool) -> None:
    """Compare the product in a stage's folder with the sizes that `record` lists, and with the checksums. Raises `Broken`."""
    for name, file in record.get("files", {}).items():
        place = folder / "out" / name
        size = place.stat().st_size if place.is_file() else None
        if size != file["bytes"]:
            found = "is gone" if size is None else f"has {size:,} bytes instead of {file['bytes']:,}"
            raise Broken(f"{folder.name}/out/{name} {found}")
        if contents and digest_of_file(place) != file["sha256"]:
            raise Broken(f"{folder.name}/out/{name} has changed since it was written (its sha256 differs)")


def reject(folder: Path) -> None:
    """Let a broken stage count as unfinished from now on. Raises `LinkRefused` behind a link."""
    for place in (folder, folder.parent):
        if place.is_symlink():
            raise LinkRefused(place)
    (folder / RECORD).unlink(missing_ok=True)
