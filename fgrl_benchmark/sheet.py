"""The file of a method's lines, `NAME.jsonl`: the first line describes the method, each other line is a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fgrl
import fgrl_benchmark
from fgrl import DataError, UsageError
from fgrl_benchmark import benchmark
from fgrl_benchmark.own_method import Method

SENT = benchmark.HERE / "sent"
"""Folder of submitted methods: their components, recipes and lines."""
SUFFIX = ".jsonl"
DEFINES = ("recipe", "world", "knob", "rates", "overrides", "files")
"""Entries of the first line that determine the runs."""
TUNE, TEST, REFERENCE = "tune", "test", "reference"
"""Phases of the lines: a reference is a run of the scalar on the same machine."""


@dataclass
class Sheet:
    """The lines of one method."""

    file: Path
    about: dict[str, Any]
    """The first line."""
    lines: list[dict[str, Any]] = field(default_factory=list)

    def of(self, phase: str) -> list[dict[str, Any]]:
        """Return the finished runs of a phase, in an order that does not depend on which finished first."""
        ended = [line for line in self.lines if line["phase"] == phase and "stopped" not in line]
        return sorted(ended, key=lambda line: str(line["key"]))

    def stopped(self, phase: str) -> int:
        """Return the number of runs that stopped."""
        return sum(line["phase"] == phase and "stopped" in line for line in self.lines)

    def has(self, phase: str, key: str) -> bool:
        """Return True if a run has a line."""
        return any((line["phase"], line["key"]) == (phase, key) for line in self.lines)

    def add(self, line: Mapping[str, Any]) -> None:
        """Write the line of a run."""
        self.lines.append(dict(line))
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def described(method: Method) -> dict[str, Any]:
    """Return the first line of a method's file."""
    row = "" if method.address.row is None else f"::{method.address.row}"
    package = "" if method.folder == method.address.file.parent else f"{fgrl_benchmark.__name__}:"
    return {
        "method": method.name, "told": method.told, "about": method.about, "world": method.world.name,
        "recipe": f"{package}{method.address.file.name}{row}", "knob": dict(method.knob), "rates": list(method.rates),
        "overrides": dict(method.overrides), "files": method.files(), "fgrl": fgrl.__version__,
    }  # fmt: skip


def sheet_of(method: Method, *, again: bool = False) -> Sheet:
    """Return the current lines of a method, in its folder. again: begin anew. Raises `UsageError` if the lines belong
    to another version of the method.
    """
    file, about = method.folder / f"{method.name}{SUFFIX}", described(method)
    if not file.exists() or again:
        return written(file, about, [])
    sheet = read(file)
    changed = [key for key in DEFINES if sheet.about.get(key) != about[key]]
    if changed:
        raise UsageError(
            f"{file.name} has {len(sheet.lines)} runs of {method.name} as it was before: {', '.join(changed)} changed since; "
            "--again deletes them and begins anew"
        )
    return sheet if sheet.about == about else written(file, about, sheet.lines)


def read(file: Path) -> Sheet:
    """Return the lines of a file. Raises `DataError` if `fgrl benchmark` did not write it."""
    try:
        about, *lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
        if not {"method", "told", *DEFINES} <= about.keys() or any("phase" not in line for line in lines):
            raise ValueError("an entry is missing")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{file}: no file of lines that `fgrl benchmark` wrote ({error})") from None
    return Sheet(file, about, lines)


def sent() -> list[Sheet]:
    """Return the lines of all submitted methods."""
    return [read(file) for file in sorted(SENT.glob(f"*{SUFFIX}"))]


def written(file: Path, about: dict[str, Any], lines: Iterable[dict[str, Any]]) -> Sheet:
    """Write a file and return it."""
    sheet = Sheet(file, about, list(lines))
    file.write_text("".join(json.dumps(each) + "\n" for each in (about, *sheet.lines)), encoding="utf-8")
    return sheet
