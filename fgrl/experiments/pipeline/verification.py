"""Comparison of everything in a folder of runs with its checksums: `fgrl doctor RUNS`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from fgrl.base.errors import DataError, UsageError
from fgrl.base.files import damage_reported
from fgrl.runs.folders import Runs
from fgrl.runs.records import RUN, Broken, Unfinished
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage
from fgrl.training import checkpoints


def verify(runs: Runs) -> dict[str, Any]:
    """Return the counts of the stages, and `problems`: broken files and the consequence of each. A broken finished
    stage counts as unfinished from then on. Raises `UsageError` for a folder without stages.
    """
    runs.check()
    if not runs.stages.is_dir():
        raise UsageError(f"{runs.root} holds no runs: there is no {runs.stages}")
    counts = {"stages": 0, "whole": 0, "unfinished": 0}
    problems: list[str] = []
    for folder in sorted(runs.stages.glob("*-*")):
        counts["stages"] += 1
        try:
            Stage(folder).check(contents=True)
            counts["whole"] += 1
        except Unfinished:
            counts["unfinished"] += 1
        except Broken as broken:
            Stage(folder).reject()
            problems.append(f"{broken}: the stage counts as unfinished from now on, and the next run makes it again")
        for name in checkpoints.NAMES:
            if damage := checkpoints.damage(folder / name):
                then = "the stage will continue from an older one, or start from its beginning"
                problems.append(f"{folder.name}/{name} is damaged ({damage}): {then}")
    for folder in sorted(runs.every_invocation()):
        run = Run(folder)
        if run.has_record and (record := run.record) and run.damage:
            shown = "" if record.exit is not None else " The run is shown as unfinished"
            problems.append(f"{(folder / RUN).relative_to(runs.root)}: {' '.join(run.damage)}{shown}")
    problems += [problem for file in sorted(runs.cache.glob("*.sqlite")) if (problem := _damage_of(file))]
    return {**counts, "problems": problems}


def _damage_of(database: Path) -> str:
    try:
        with closing(sqlite3.connect(database, timeout=60)) as connection, damage_reported(database):
            (first, *_) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if first != "ok":
                raise sqlite3.DatabaseError(first)
    except DataError as error:
        return str(error)
    return ""
