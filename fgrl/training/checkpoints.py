"""Checkpoints on disk: the checkpoint to resume from, and the check that a file is unchanged.

`torch.save` writes zip archives whose directory has a CRC-32 of every entry; `seal` adds the sha256 of that directory
as the archive's comment. So a checkpoint is checked without a second file, at no further cost when it is written. A
checkpoint in shards is a folder with the size and the sha256 of each of its files (`seal_folder`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import pickle
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fgrl.base import lazy, ranks
from fgrl.base.files import remove, sha256_of_file, write_json
from fgrl.kinds import Run

together = lazy.load("fgrl.feedback.llm.together")
torch = lazy.load("torch")

NAMES = ("last.ckpt", "replaced.ckpt")
"""File names of checkpoints, the newest first."""
MANIFEST = "manifest.json"
"""File with the size and sha256 of each file of a checkpoint in shards."""
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError)
"""Errors of reading a damaged archive, depending on the place of the damage."""


def last(folder: Path) -> Path | None:
    """Return the checkpoint to resume from, if there is one."""
    return next((path for name in NAMES if (path := folder / name).exists()), None)


def remove_damaged(run: Run, *, folder: bool = False) -> None:
    """Remove, with a message, a checkpoint that is incomplete, has changed since it was written, or has other contents.
    Every process calls this, and reads some of the files.

    folder: True if the strategy's checkpoint is a folder instead of a file.
    """
    for path in (run.dir / name for name in NAMES):
        problem = damage(path, ranks.place(), ranks.connected()) or foreign(path, folder=folder)
        problem = next(filter(None, together.everybody([problem])), "")
        if problem and run.rank == 0:
            remove(path)
            older = last(run.dir)
            then = "starts from its beginning" if older is None else f"continues from {older.name}"
            run.say(f"{path.name} is damaged ({problem}): it is removed, and the training {then}")
    ranks.meet()


def install(partial: Path, *, keep: bool = False) -> None:
    """Give a checkpoint that was just written its final name. keep: keep the previous one under another name."""
    path, replaced = (partial.parent / name for name in NAMES)
    if path.is_dir():  # which cannot be replaced in one move
        remove(replaced)
        path.rename(replaced)
    partial.rename(path)
    if not keep:
        remove(replaced)


def size_and_sum(file: Path) -> tuple[int, str]:
    """Return the size and the sha256 of a file."""
    return file.stat().st_size, sha256_of_file(file)


def seal_folder(folder: Path, sums: Mapping[str, tuple[int, str]]) -> None:
    """Write the sizes and sums of all files of a checkpoint in shards, which marks it as complete."""
    write_json(folder / MANIFEST, sums)


def seal(checkpoint: Path) -> None:
    """Add its checksum to every archive of a checkpoint that was just written."""
    for file in _archives(checkpoint):
        with zipfile.ZipFile(file) as archive:
            start = archive.start_dir
        with file.open("r+b") as stream:
            stream.seek(start)
            checksum = hashlib.sha256(stream.read()).hexdigest().encode()
            stream.seek(-2, 2)  # the length of the comment, which ends the archive
            stream.write(len(checksum).to_bytes(2, "little") + checksum)


def damage(checkpoint: Path, first: int = 0, step: int = 1) -> str:
    """Return the damage of a checkpoint; empty if there is none, or no checkpoint. A checkpoint that was never sealed
    is only checked by CRC-32. Only every `step`-th of its files is read, beginning with number `first`.
    """
    if (checkpoint / MANIFEST).exists():
        return _damaged_shard(checkpoint, slice(first, None, step))
    for file in list(_archives(checkpoint))[first::step]:
        try:
            with zipfile.ZipFile(file) as archive:
                broken, start, seal = archive.testzip(), archive.start_dir, archive.comment
        except UNREADABLE as error:
            return f"{file.name} cannot be read: {error}"
        except OSError as error:
            if error.errno != errno.EINVAL:  # a place that the file does not have
                raise
            return f"{file.name} cannot be read: {error}"
        with file.open("rb") as stream:
            stream.seek(start)
            directory = stream.read()
        unsealed = directory[: len(directory) - len(seal) - 2] + b"\0\0"
        if broken or (seal and hashlib.sha256(unsealed).hexdigest().encode() != seal):
            return f"a checksum in {file.name} differs"
    return ""


def _damaged_shard(folder: Path, part: slice) -> str:
    names = {file.name for file in folder.iterdir()} - {MANIFEST}
    try:
        sums: Mapping[str, Sequence[Any]] = json.loads((folder / MANIFEST).read_bytes())
        if names != sums.keys():
            other = min(names ^ sums.keys())
            return f"{other} is {'not listed' if other in names else 'missing'}"
        wrong = (name for name in sorted(names)[part] if [*size_and_sum(folder / name)] != sums[name])
    except (ValueError, AttributeError) as error:
        return f"{MANIFEST} cannot be read: {error}"
    return next((f"the checksum of {name} differs" for name in wrong), "")


def foreign(checkpoint: Path, *, folder: bool) -> str:
    """Return the reason why an undamaged file is not a checkpoint of a training; empty if it is one, or if there is
    none.
    """
    if not checkpoint.exists():
        return ""
    if checkpoint.is_dir() != folder:
        return f"a {'file' if folder else 'folder'}, and this training writes a {'folder' if folder else 'file'}"
    if folder:
        whole = (checkpoint / MANIFEST).exists() or any(_archives(checkpoint))
        return "" if whole else "a folder without checkpoints"
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, *UNREADABLE) as error:
        return f"it cannot be loaded without executing code: {str(error).splitlines()[0]}"
    known = content if isinstance(content, dict) else {}
    missing = [name for name in ("state_dict", "loops", "round") if name not in known]
    return f"it has no {missing[0]}" if missing else ""


def _archives(checkpoint: Path) -> Iterator[Path]:
    """Yield the file itself; for a folder written by DeepSpeed, the files of all processes."""
    if checkpoint.is_dir():
        yield from sorted(checkpoint.rglob("*.pt"))
    elif checkpoint.exists():
        yield checkpoint
