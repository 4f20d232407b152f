"""A stage in separate processes, one for each device, started by torchrun's agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

from fgrl.base import native, ranks, stops
from fgrl.base.console import Console
from fgrl.base.errors import DONE, INTERRUPTED, UserCodeError
from fgrl.base.files import KEPT
from fgrl.experiments.pipeline import workers
from fgrl.experiments.pipeline.endings import ChildFailed
from fgrl.experiments.pipeline.invocation import Invocation
from fgrl.experiments.pipeline.planning import Planned
from fgrl.training import launching

POLL = 0.2
"""Seconds between two checks for an interrupt."""
ENDED = "ended-ranks.json"
"""File in the folder of the invocation that records how the ranks ended, until it is read."""


def is_needed(stage: Planned) -> bool:
    """Return True if the stage needs separate processes: False when this process is one of them."""
    return stage.stage.processes() > 1 and ranks.started() in (None, 1)


def run(stage: Planned, folder: Path, invocation: Invocation, console: Console) -> None:
    """Run `torchrun -m fgrl run R --only stage`, which works in `folder`. Rank 0 writes to the folder of `invocation`
    and takes the stage's lock itself.

    A request to stop is passed on. When this process is aborted, the ranks are aborted too, and they end when this
    process ends. Raises `ChildFailed` if rank 0 has already reported what failed, the error of another rank, or
    `RankLost`.
    """
    workers.forget(folder)
    world, ended = stage.stage.processes(), invocation.folder / ENDED
    environment = {
        **invocation.environment,
        **native.inherited(),
        KEPT: os.environ[KEPT],
        ranks.INVOCATION: str(invocation.folder.resolve()),
        ranks.KEY: stage.key,
        ranks.STORE: uuid.uuid4().hex,
        **({} if invocation.options.swept is None else invocation.options.swept.inherited()),
    }
    agent = [sys.executable, "-m", "fgrl.training.agent", str(world), str(ended.resolve())]
    with stops.children_end_with_us(environment):
        process = subprocess.Popen(
            [*agent, *_command(stage, invocation, console)],
            env=environment,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches it once, through us
        )
    forwarded = False
    try:
        while True:
            try:
                code = process.wait(timeout=POLL)
                break
            except subprocess.TimeoutExpired:
                if stops.asked(threading.get_ident()) and not forwarded:  # asked to leave, the ranks do so themselves
                    process.send_signal(signal.SIGTERM)
                    forwarded = True
    except BaseException:
        process.kill()  # and the ranks with it
        process.wait()
        raise
    codes = {int(rank): ending for rank, ending in json.loads(ended.read_text()).items()} if ended.exists() else {}
    ended.unlink(missing_ok=True)
    finished = invocation.plan.runs.find(stage.key)
    if finished is not None and finished.is_done(stage.key):
        return
    if code == DONE:
        raise UserCodeError(
            f"stage {stage.name}: its processes ended with exit code 0 before the stage was done: code of yours, or of a library that "
            "it uses, ends a process"
        )
    raise _cause(code, codes, folder, world, forwarded=forwarded)


def _cause(code: int, codes: dict[int, int], folder: Path, world: int, *, forwarded: bool) -> BaseException:
    """Return the error that ended the stage. code: exit code of the agent. codes: exit codes of the ranks that failed."""
    followed = (DONE, INTERRUPTED, launching.FOLLOWED)
    if codes.get(0, DONE) > 0 and codes[0] not in followed:
        return ChildFailed(codes[0])
    if (failed := workers.left(folder)) is not None:
        return failed
    stopped = all(ending in (INTERRUPTED, -signal.SIGTERM) for ending in codes.values())
    if forwarded or (code > 0 and stopped and not launching.words(folder)):
        return KeyboardInterrupt()
    if code < 0 and not launching.words(folder):
        return launching.ended("the process that watches over the ranks", code)
    return launching.lost(codes, folder, world)


def _command(stage: Planned, invocation: Invocation, console: Console) -> list[str]:
    options, plan = invocation.options, invocation.plan
    command = ["-m", "fgrl", "run", plan.recipe.address, "--only", stage.name]
    command += ["--runs", str(plan.runs.root)]
    command += ["--limit", str(options.limit)] if options.limit is not None else []
    command += ["--wandb", options.wandb] if options.wandb is not None else []
    command += ["--mlflow", options.mlflow] if options.mlflow is not None else []
    command += ["--tensorboard"] if options.tensorboard == "" else []
    command += ["--tensorboard-dir", options.tensorboard] if options.tensorboard else []
    return command + ["-q"] * console.quiet + ["-v"] * console.verbose + list(options.arguments)
