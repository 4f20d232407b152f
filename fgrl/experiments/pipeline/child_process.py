"""A stage in a separate process, which Lightning's launcher can execute again for every device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fgrl.base import native, ranks, stops
from fgrl.base.console import Console
from fgrl.base.errors import DONE, UserCodeError
from fgrl.base.files import KEPT
from fgrl.experiments.pipeline.endings import ChildFailed
from fgrl.experiments.pipeline.invocation import Invocation
from fgrl.experiments.pipeline.planning import Options, Planned
from fgrl.training import launching

GRACE = 15.0
"""Seconds that the process of a distributed stage has to leave after it was aborted."""
POLL = 0.2
"""Seconds between two looks at whether an interrupt was asked for."""


def is_needed(stage: Planned, options: Options) -> bool:
    """Return True if the stage needs a separate process: not when this process was started for it alone."""
    return stage.stage.processes() > 1 and list(options.only) != [stage.name]


def run(
    stage: Planned, folder: Path, invocation: Invocation, console: Console, interrupted: Callable[[], bool]
) -> None:
    """`fgrl run R --only stage`, which works in `folder`; it writes to the folder of `invocation` and takes the stage's
    lock itself.

    A stop is passed on; when this process is aborted, so is the child, and it ends when this process does. Raises
    `ChildFailed`, and `RankLost` where a signal has ended the child.
    """
    launching.forget_waits(folder)
    environment = {
        **invocation.environment,
        **native.inherited(),
        KEPT: os.environ[KEPT],
        ranks.INVOCATION: str(invocation.folder.resolve()),
        ranks.KEY: stage.key,
        **({} if invocation.options.swept is None else invocation.options.swept.inherited()),
    }
    with stops.children_end_with_us(environment):
        process = subprocess.Popen(
            _command(stage, invocation, console),
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
                if interrupted() and not forwarded:
                    process.send_signal(signal.SIGTERM)
                    forwarded = True
    except BaseException:
        _abort(process)
        raise
    if code < 0 and forwarded:  # it had not begun
        raise KeyboardInterrupt
    if code < 0:
        raise launching.lost_to_signal_or_hung(0, code, folder)
    if code != DONE:
        raise ChildFailed(code)
    finished = invocation.plan.runs.find(stage.key)
    if finished is None or not finished.is_done(stage.key):
        raise UserCodeError(
            f"stage {stage.name}: its process ended with exit code 0 before the stage was done: code of yours, or of a library that it "
            "uses, ends the process"
        )


def _command(stage: Planned, invocation: Invocation, console: Console) -> list[str]:
    options, plan = invocation.options, invocation.plan
    command = [sys.executable, "-m", "fgrl", "run", plan.recipe.address, "--only", stage.name]
    command += ["--runs", str(plan.runs.root)]
    command += ["--limit", str(options.limit)] if options.limit is not None else []
    command += ["--wandb", options.wandb] if options.wandb is not None else []
    command += ["--mlflow", options.mlflow] if options.mlflow is not None else []
    command += ["--tensorboard"] if options.tensorboard == "" else []
    command += ["--tensorboard-dir", options.tensorboard] if options.tensorboard else []
    return command + ["-q"] * console.quiet + ["-v"] * console.verbose + list(options.arguments)


def _abort(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):  # the second one aborts
        os.killpg(process.pid, number)
    try:
        process.wait(timeout=GRACE)
    except (
        subprocess.TimeoutExpired
    ):  # a process that waits for another one in a collective operation handles no signal
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
