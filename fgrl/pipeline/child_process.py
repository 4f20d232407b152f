"""A stage in a separate process, which Lightning's launcher can execute again for every device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from fgrl.console import Console
from fgrl.errors import DONE
from fgrl.pipeline import ranks
from fgrl.pipeline.endings import ChildFailed
from fgrl.pipeline.invocation import Invocation
from fgrl.pipeline.planning import Options, Planned

GRACE = 15.0
"""Seconds that the process of a distributed stage has to leave after it was aborted."""
POLL = 0.2
"""Seconds between two looks at whether an interrupt was asked for."""


def is_needed(stage: Planned, options: Options) -> bool:
    """Does the stage need a separate process? Not when this process was started for it alone."""
    return stage.stage.processes() > 1 and list(options.only) != [stage.name]


def run(stage: Planned, invocation: Invocation, console: Console, interrupted: Callable[[], bool]) -> None:
    """`fgrl run R --only stage`; it writes to the folder of `invocation` and takes the stage's lock itself.

    The first Ctrl-C is passed on; when this process is aborted, so is the child. Raises `ChildFailed`.
    """
    process = subprocess.Popen(
        _command(stage, invocation, console),
        env={**invocation.environment, ranks.INVOCATION: str(invocation.folder.resolve()), ranks.KEY: stage.key},
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
                    process.send_signal(signal.SIGINT)
                    forwarded = True
    except BaseException:
        _abort(process, signal.SIGTERM if forwarded else signal.SIGINT)
        raise
    if code != DONE:
        raise ChildFailed(code)


def _command(stage: Planned, invocation: Invocation, console: Console) -> list[str]:
    options, plan = invocation.options, invocation.plan
    command = [sys.executable, "-m", "fgrl", "run", plan.recipe.address, "--only", stage.name]
    command += ["--runs", str(plan.runs.root)]
    command += ["--limit", str(options.limit)] if options.limit is not None else []
    command += ["--wandb", options.wandb] if options.wandb is not None else []
    command += ["--tensorboard"] if options.tensorboard == "" else []
    command += ["--tensorboard-dir", options.tensorboard] if options.tensorboard else []
    return command + ["-q"] * console.quiet + ["-v"] * console.verbose + list(options.arguments)


def _abort(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    os.killpg(process.pid, number)
    try:
        process.wait(timeout=GRACE)
    except (
        subprocess.TimeoutExpired
    ):  # a process that waits for another one in a collective operation handles no signal
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
