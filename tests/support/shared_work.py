"""Stages in copies of this process, as `srun` starts them, and what they make."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forks import forked

from fgrl import cli


def ranks_run(
    recipe: Path, folder: Path, stage: str, world: int, disturb: Callable[[int], Any] = lambda _rank: None
) -> list[int]:
    """A stage in so many processes, as `srun` starts them. Return their exit codes."""
    folder.mkdir(exist_ok=True)
    step = {"SLURM_STEP_NUM_TASKS": str(world), "SLURM_JOB_ID": f"{len(list(folder.iterdir()))}"}

    def work(rank: int) -> None:
        file = os.open(folder / f"said-{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # pytest has replaced them
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        os.environ |= (step | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}) if world > 1 else {}
        os.chdir(folder)
        disturb(rank)
        try:
            cli.main(["run", str(recipe), "--runs", str(folder / "runs"), "--only", stage, f"vars.devices={world}"])
        except SystemExit as end:
            os._exit(int(end.code or 0))

    processes = [forked(lambda rank=rank: work(rank)) for rank in range(world)]  # type: ignore[misc]
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def product(folder: Path, stage: str) -> dict[str, bytes]:
    (place,) = (folder / "runs" / "stages").glob(f"{stage}-*")
    assert (place / "stage.json").is_file(), (folder / "said-0").read_text()
    out = place / "out"
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}
