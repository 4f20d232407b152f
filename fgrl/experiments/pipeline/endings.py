"""The end of an invocation: any error becomes an exit code and a message, and `report.html` is written."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fgrl.base import lazy
from fgrl.base.console import Console, listening
from fgrl.base.errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    WRONG_REQUEST,
    Aborted,
    FgrlError,
    RankLost,
    UsageError,
    disk_error,
)
from fgrl.experiments.pipeline.interrupts import Interrupts
from fgrl.experiments.pipeline.invocation import Invocation
from fgrl.experiments.pipeline.libraries import diverted
from fgrl.kinds.functions import as_user_error
from fgrl.runs.records import RUN
from fgrl.runs.run import Run
from fgrl.training import launching

report = lazy.load("fgrl.pages.report")
concluding = lazy.load("fgrl.runs.results.concluding")


class ChildFailed(FgrlError):
    """Failure of the process of a distributed stage, which has already printed the reason."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the process of a distributed stage ended with {code}")
        self.exit_code = max(code, FAILED)
        """Exit code of the child process, or 1 if a signal ended it (then `code` is negative)."""


@dataclass(frozen=True)
class Ending:
    """Exit code and message of an error that ends an invocation."""

    exit_code: int
    message: str
    bug: bool = False
    """True if the traceback must be shown because nothing else is known about the error."""
    details: str = ""
    """Text for run.log alone (and the terminal with -v): the traceback of an error in the user's code."""


class RankFailed(FgrlError):
    """Failure of another rank of a distributed stage, which has recorded how it ended."""

    def __init__(self, how: Ending) -> None:
        super().__init__(how.message)
        self.how, self.exit_code = how, how.exit_code


def ending(error: BaseException, runs: Path) -> Ending:
    """Return the exit code of an error, and the message to report. `runs` is on the disk that may be full."""
    if isinstance(error, RankFailed):
        return error.how
    if (user := as_user_error(error)) is not None:
        after = "; the traceback is in run.log (-v shows it)" if user.details else ""
        message = f"{user}\n    = correct it and run the same command: finished stages stay{after}"
        return Ending(user.exit_code, message, details=user.details)
    if isinstance(error, ChildFailed) or (isinstance(error, FgrlError) and error.exit_code != FAILED):
        return Ending(error.exit_code, error.explanation())
    if isinstance(error, Aborted):
        return Ending(INTERRUPTED, "aborted; run the same command to continue from the last checkpoint")
    if isinstance(error, KeyboardInterrupt):
        return Ending(INTERRUPTED, "interrupted; what is finished is kept: run the same command to continue")
    if (disk := disk_error(error)) is not None:
        free = shutil.disk_usage(runs).free / 2**20
        return Ending(disk.exit_code, f"{disk.explanation()} ({free:.0f} MiB free in {runs})")
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, without importing it
        message = "out of memory: lower train.micro_batch_size (or micro_batch_tokens) or sampling.batch_size, and run the same command"
    return Ending(FAILED, message, bug=True)


@contextmanager
def concluded(invocation: Invocation, console: Console) -> Iterator[Interrupts]:
    """Run stages inside the context: the console and the libraries write to `run.log`, and Ctrl-C is a request
    (`Interrupts`).

    An error inside is reported in the summary of the invocation and at the terminal instead of being raised, except
    `UsageError`. The page is written at the end, also after a failure. A failed start leaves no files.
    """
    try:
        with _logged(invocation.folder / "run.log", console):
            try:
                with Interrupts(lambda text: _acknowledge(text, invocation, console)) as interrupts:
                    yield interrupts
            except UsageError:
                invocation.summary.exit = WRONG_REQUEST
                raise
            except BaseException as error:
                _fail(error, invocation, console)
            else:
                invocation.end(DONE)
            if not invocation.child and invocation.summary.exit != INTERRUPTED and not invocation.failed_start:
                _write_page(invocation, console)
    finally:
        if invocation.failed_start:
            invocation.remove()


def _acknowledge(text: str, invocation: Invocation, console: Console) -> None:
    if not invocation.child:  # its parent has said it
        console.alert(f"{console.prefix}{text}")


@contextmanager
def _logged(log: Path, console: Console) -> Iterator[None]:
    """Let the console and the libraries write to the file `log` inside the context."""
    with (
        log.open("a", encoding="utf-8") as console.log,
        diverted(log, verbose=console.verbose),
        listening(console),
    ):
        try:
            yield
        finally:
            console.log = None


def _fail(error: BaseException, invocation: Invocation, console: Console) -> None:
    how = ending(error, invocation.plan.runs.root)
    if invocation.child and isinstance(error, KeyboardInterrupt | RankLost):  # its parent tells of it
        invocation.end(launching.FOLLOWED if isinstance(error, RankLost) else INTERRUPTED)
        return
    if how.details:
        console.note(how.details)
    invocation.summary.failure = error
    report = console.note if invocation.options.raises else console.alert  # who gets the error needs no copy of it
    if how.bug:
        report("".join(traceback.format_exception(error)).rstrip())
    with _reported(RUN, console):
        invocation.end(how.exit_code, how.message)
    if how.exit_code == INTERRUPTED and invocation.failed_start:
        report("interrupted before anything was done; nothing is kept")
    elif not isinstance(error, ChildFailed):
        report(how.message)


@contextmanager
def _reported(file: str, console: Console) -> Iterator[None]:
    """Guard the writing of a file about how the run ended. If the disk is full and it cannot be written, this is
    reported, and the exit code does not change.
    """
    try:
        yield
    except OSError as failure:
        if disk_error(failure) is None:
            raise
        console.alert(f"{file} could not be written: {failure.strerror}")


def _write_page(invocation: Invocation, console: Console) -> None:
    """Write the conclusions and `report.html`. Results do not depend on them: a failure here is shown as a bug, and the
    stages stay finished.
    """
    summary = invocation.summary
    console.enter("writing the report")
    try:
        with _reported("report.html", console):
            invocation.conclude(concluding.conclude(Run(invocation.folder)).model_dump())
            if invocation.options.page:
                summary.report = report.write(invocation.folder)
    except Exception:
        summary.exit = summary.exit or FAILED
        summary.error = summary.error or "report.html could not be written; the stages are done"
        console.alert(traceback.format_exc().rstrip())
        console.alert(summary.error)
        with _reported(RUN, console):
            invocation.save()
