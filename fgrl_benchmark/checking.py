"""Are the lines that somebody sends in reproduced? `fgrl benchmark --check NAME.jsonl`."""

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
"""What has to be the same in a run and in its line."""


@dataclass(frozen=True)
class Finding:
    """What a part of the check showed."""

    held: bool
    text: str


def check(file: Path, *, runs: str, jobs: int, console: Console) -> Iterator[Finding]:
    """Yield what a file of lines shows: is the method the one that ran, are all runs there, are those of the first seed reproduced?

    Raises `DataError` where it is no such file, and `UsageError` where the method is not there.
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
    """Return the method that a file of lines names; its recipe lies beside it."""
    about = sheet.about
    knob = [f"{name}={','.join(map(json.dumps, values))}" for name, values in about["knob"].items()]
    return own_method.bring(
        f"{sheet.file.parent}/{about['recipe']}" if ":" not in about["recipe"].partition("::")[0] else about["recipe"],
        name=about["method"], told=about["told"], knob="".join(knob), overrides=override_texts(about["overrides"]),
    )  # fmt: skip


def compared(sheet: Sheet, line: dict) -> Finding:
    """Return whether a run is the same as its line; on another kind of machine, whether it is one of those to be expected."""
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
