"""Errors in the processes of a distributed stage, which are reported once.

Usually all processes raise the same error at the same point, and the error of rank 0 is reported. If only a worker (a
rank above 0) fails, its report is in the stage's folder, and rank 0 only notices that a connection was closed or that
it is asked to stop.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from fgrl.base import stops
from fgrl.base.errors import DONE, INTERRUPTED, RankLost, Stopped
from fgrl.base.files import write_json
from fgrl.base.sanitizing import hide_in
from fgrl.experiments.pipeline.endings import Ending, RankFailed, ending
from fgrl.kinds.functions import as_user_error
from fgrl.training import launching

REPORT = "failed-rank-{}.json"


@contextmanager
def silent(folder: Path, rank: int) -> Iterator[None]:
    """Save an error in a worker for the process that reports it, and end the worker without a message. The loss of
    another rank is reported here if no `fgrl run` reports it.
    """
    try:
        yield
    except Stopped:  # raised in every process at the same point
        return
    except KeyboardInterrupt:  # a SIGTERM to this process
        raise SystemExit(INTERRUPTED) from None
    except RankLost as lost:
        if stops.has_parent():
            raise SystemExit(launching.FOLLOWED) from None
        sys.stderr.write(f"{lost.at_terminal()}\n")
        raise SystemExit(lost.exit_code) from None
    except Exception as error:
        how = ending(error, folder)
        if how.bug:
            how = replace(how, bug=False, message="".join(traceback.format_exception(error)) + how.message)
        write_json(folder / REPORT.format(rank), hide_in(asdict(how)))
        # `srun` may kill all ranks where one fails, before rank 0 has reported it
        raise SystemExit(how.exit_code if stops.has_parent() else DONE) from None


def forget(folder: Path) -> None:
    """Delete the errors that workers saved in an earlier attempt."""
    for left in folder.glob(REPORT.format("*")):
        left.unlink()
    launching.forget_waits(folder)


def left(folder: Path) -> RankFailed | None:
    """Return the error that a worker saved, if there is one."""
    for file in sorted(folder.glob(REPORT.format("*"))):
        return RankFailed(Ending(**json.loads(file.read_text(encoding="utf-8"))))
    return None


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Replace an error of rank 0 that was caused by a worker's error with the worker's error."""
    try:
        yield
    except Exception as error:
        if as_user_error(error) is None and (cause := left(folder)) is not None:
            raise cause from error
        raise
