"""Digests of files and folders that hold models."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fgrl import files


def digest_of_folder(folder: Path) -> str:
    """sha256 over names and contents of the files in a folder (hidden ones left out)."""

    def entry(name: str, file: Path) -> bytes:
        hidden = any(part.startswith(".") for part in name.split("/"))
        return b"" if hidden else f"{name}\0{digest_of_file(file)}\n".encode(errors="surrogateescape")

    return files.sha256_of_folder(folder, entry)


def digest_of_file(file: Path) -> str:
    """sha256 of a file; read again only if its size or one of its times has changed."""
    status = file.stat()
    return _digest(str(file), status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=4096)
def _digest(file: str, size: int, modified: int, changed: int) -> str:
    return files.sha256_of_file(Path(file))
