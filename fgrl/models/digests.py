"""Digests of files and folders of models."""

from __future__ import annotations

from pathlib import Path

from fgrl.base import files


def digest_of_folder(folder: Path) -> str:
    """Return the sha256 over names and contents of the files in a folder (hidden files are left out)."""

    def entry(name: str, file: Path) -> bytes:
        hidden = any(part.startswith(".") for part in name.split("/"))
        return b"" if hidden else f"{name}\0{files.digest_of_file(file)}\n".encode(errors="surrogateescape")

    return files.sha256_of_folder(folder, entry)
