"""Check whether submitted lines can be reproduced: `fgrl benchmark --check NAME.jsonl`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fgrl.base.console import Console
from fgrl.library.inputs import override_texts
from fgrl.measuring.statistics import student
from fgrl_benchmark import own_method, ranking
from fgrl_benchmark.comparisons import PRIMARY
from fgrl_benchmark.sheet import DEFINES, TEST, TUNE, Sheet, described, read, written

NUMBERS = ("start.right", PRIMARY, "policy.kl", "drawn", "distinct", "auc")
"""Numbers that must be equal in a run and in its line."""


@dataclass(frozen=True)
class Finding:
    """Result of a part of the check."""

    held: bool
    text: str


def check(file: Path, *, runs: str, jobs: int, console: Console) -> Iterator[Finding]:
    """Yield the findings about a file of lines: whether the method is the one that ran, whether all runs are there, and
    whether those of the first seed are reproduced.

    Raises `DataError` if it is no such file, and `UsageError` if the method is missing.
    """
    sheet = read(file)
    method = method_of(sheet)
    yield from whole(sheet, method)
    tests = ranking.testing(method, ranking.chosen(method, sheet))
    first = [item for item in tests if item.point.seed == method.world.seeds[0]]
    start = ranking.started(method.world, runs, console)
    with tempfile.TemporaryDirectory(prefix="fgrl-check-") as folder, ranking.workers(jobs, start, folder) as pool:
        new = written(Path(folder) / file.name, sheet.about, [])
        ranking.do(first, new, pool, console, f"{method.name} · seed {method.world.seeds[0]} again")
    for line in new.lines:
        yield compared(sheet, line)


def whole(sheet: Sheet, method: own_method.Method) -> Iterator[Finding]:
    """Yield whether the method is the one that ran, with the settings that its tuning chose, and whether all runs are there."""
    now = described(method)
    changed = [key for key in DEFINES if now[key] != sheet.about[key]]
    yield Finding(not changed, f"{', '.join(changed)} changed since" if changed else "the method is the one that ran")
    tests = ranking.testing(method, ranking.chosen(method, sheet))
    for phase, items in ((TUNE, ranking.tuning(method)), (TEST, tests)):
        wanted = {item.point.key for item in items}
        there = {line["key"] for line in sheet.lines if line["phase"] == phase}
        lacks = "" if wanted == there else f"; missing: {len(wanted - there)}, others: {len(there - wanted)}"
        yield Finding(not lacks, f"phase {phase} has {len(there)} of its {len(wanted)} runs{lacks}")


def method_of(sheet: Sheet) -> own_method.Method:
    """Return the method that a file of lines names; its recipe lies in the same folder."""
    about = sheet.about
    knob = [f"{name}={','.join(map(json.dumps, values))}" for name, values in about["knob"].items()]
    return own_method.bring(
        f"{sheet.file.parent}/{about['recipe']}" if ":" not in about["recipe"].partition("::")[0] else about["recipe"],
        name=about["method"], told=about["told"], knob="".join(knob), overrides=override_texts(about["overrides"]),
    )  # fmt: skip


def compared(sheet: Sheet, line: dict) -> Finding:
    """Return whether a run equals its line. On another kind of machine, return whether it is within the expected
    differences.
    """
    theirs = next((each for each in sheet.of(TEST) if each["key"] == line["key"]), {})
    where = f"{line['task']}, seed {line['seed']}"
    if "stopped" in line or not theirs:
        return Finding(False, f"{where}: {line.get('stopped', 'it has no line to compare with')}")
    different = [name for name in NUMBERS if line.get(name) != theirs.get(name)]
    if not different:
        return Finding(True, f"{where}: every number is the same ({PRIMARY} {line[PRIMARY]:.3f})")
    others = [each[PRIMARY] for each in sheet.of(TEST) if each["task"] == line["task"]]
    over = student([each - line[PRIMARY] for each in others])
    margin = 0.0 if over.low is None or over.high is None else (over.high - over.low) / 2 * (len(others) + 1) ** 0.5
    off = abs(line[PRIMARY] - sum(others) / len(others))
    said = f"{where}: {PRIMARY} {line[PRIMARY]:.3f}, in its line {theirs[PRIMARY]:.3f}; also different: {', '.join(different)}"
    return Finding(
        off <= margin, f"{said}; a new seed would be within {margin:.3f} of the mean of its {len(others)} seeds"
    )
