"""Checkpoints on disk: where a training goes on, and whether a file is still what was written.

`torch.save` writes zip archives whose directory has a CRC-32 of every entry; `seal` adds the sha256 of that directory
as the archive's comment. So a checkpoint is checked without a second file, and writing it costs nothing more.
"""

from __future__ import annotations

import errno
import hashlib
import pickle
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from fgrl.base import lazy
from fgrl.base.files import remove
from fgrl.kinds import Run

torch = lazy.load("torch")

NAMES = ("last.ckpt", "replaced.ckpt")
"""The newest first."""
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError)
"""How reading a damaged archive fails, depending on where the damage is."""


def last(folder: Path) -> Path | None:
    """Return the checkpoint to resume from, if there is one."""
    return next((path for name in NAMES if (path := folder / name).exists()), None)


def remove_damaged(run: Run, *, folder: bool = False) -> None:
    """Remove, with a message, a checkpoint that is cut off, has changed since it was written, or holds something else.

    folder: of this strategy a checkpoint is a folder (DeepSpeed's), not a file.
    """
    for path in (run.dir / name for name in NAMES):
        if problem := damage(path) or foreign(path, folder=folder):
            run.say(f"{path.name} is damaged ({problem}): it is removed, and the training does not continue from it")
            remove(path)


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


def damage(checkpoint: Path) -> str:
    """Return what is wrong with a checkpoint; empty: nothing, or there is none. One that was never sealed has only the
    CRC-32.
    """
    for file in _archives(checkpoint):
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


def foreign(checkpoint: Path, *, folder: bool) -> str:
    """Why something whole is no checkpoint of a training; empty: it is one, or there is none."""
    if not checkpoint.exists():
        return ""
    if checkpoint.is_dir() != folder:
        return f"a {'file' if folder else 'folder'}, and this training writes a {'folder' if folder else 'file'}"
    if folder:
        return "" if any(_archives(checkpoint)) else "a folder without checkpoints"
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, *UNREADABLE) as error:
        return f"it cannot be loaded without executing code: {str(error).splitlines()[0]}"
    missing = [
        name for name in ("state_dict", "loops", "round") if not isinstance(content, dict) or name not in content
    ]
    return f"it has no {missing[0]}" if missing else ""


def _archives(checkpoint: Path) -> Iterator[Path]:
    """Yield the file itself; of a folder, as DeepSpeed writes it, the files of all processes."""
    if checkpoint.is_dir():
        yield from checkpoint.rglob("*.pt")
    elif checkpoint.exists():
        yield checkpoint
