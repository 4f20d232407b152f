"""Copies of the data files that a run reads, so that changes of a file during the run have no effect on it.

`runs/cache/inputs/<first digits of the sha256>-<name>`: one copy for each content, which later runs use again. A file
larger than `MOST_BYTES` is not copied: a stage during which it changes is not kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fgrl import registry
from fgrl.base.files import COPIES, KEPT, atomically, sha256_of_file
from fgrl.experiments.pipeline.planning import InputsChanged, Plan, Planned
from fgrl.feedback.llm.prompted import Prompted
from fgrl.kinds import Reader

MOST_BYTES = 2**30


@contextmanager
def inputs_kept(plan: Plan, stages: Sequence[Planned]) -> Iterator[None]:
    """Let readers and prompts read copies of the present contents of their files (`fgrl.base.files.kept`), in this
    process and in the processes that it starts. In a started process nothing is done: it already reads the copies of
    the run.
    """
    if KEPT in os.environ:
        yield
        return
    places = {file for stage in stages if not stage.cached for file in _read_by(stage)}
    os.environ[KEPT] = json.dumps({str(file): str(_copy(file, plan.runs.cache / COPIES)) for file in sorted(places)})
    try:
        yield
    finally:
        del os.environ[KEPT]


def _read_by(stage: Planned) -> Iterator[Path]:
    """Yield the files of a stage's readers that are not too large to be copied, and its prompt files."""
    for _path, part in registry.walk(stage.stage):
        if isinstance(part, Prompted):
            yield Path(part.prompt)
        elif isinstance(part, Reader):
            files = (file for _path, file in registry.walk(part) if isinstance(file, Path) and file.is_file())
            yield from (file for file in files if file.stat().st_size <= MOST_BYTES)


def _copy(file: Path, folder: Path) -> Path:
    """Return the copy of a file with its present content."""
    digest = sha256_of_file(file)
    kept = folder / f"{digest[:16]}-{file.name}"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with atomically(kept) as partial:
            shutil.copyfile(file, partial)
            if sha256_of_file(partial) != digest:
                raise InputsChanged(f"{file} is being written: run again when it is complete")
    return kept
