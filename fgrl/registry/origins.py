"""Code, apart from fgrl's own, that decides what the classes of a stage do."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fgrl.registry import outside


def code_of(classes: Collection[type], sources: Mapping[Path, str]) -> dict[str, Any]:
    """Return hashes and versions of the code behind classes; empty entries are left out.

    "sources": hashes of all imported user files (`sources`) where a class is defined in one of them. All, because one
    user file may build on another; a stage that uses none of them stays cached when they change. "definitions": hashes
    of classes that a notebook or a script defines. "packages": versions, by name, of the distributions that classes
    came from by an entry point. The version and not the files: a new version is how a package announces that its
    results may differ, and all files that matter (compiled ones, data, its own imports) cannot be found reliably.
    """
    bases = {base for cls in classes for base in cls.__mro__ if base is not object}
    files = {Path(file).resolve() for cls in bases if (file := _file(cls)) is not None} if sources else set()
    used = bool(files & {Path(path).resolve() for path in sources})
    known = outside.packages()
    roots = {cls.__module__.partition(".")[0] for cls in bases}
    found = {
        "sources": {str(number): digest for number, digest in enumerate(sorted(map(str, sources.values())))}
        if used
        else {},
        "definitions": outside.digests(classes),
        "packages": dict(known[root] for root in sorted(roots & known.keys())),
    }
    return {name: value for name, value in found.items() if value}


def _file(cls: type) -> str | None:
    try:
        return inspect.getfile(cls)
    except (TypeError, OSError):  # a builtin class
        return None
