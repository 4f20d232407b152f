"""Errors of the user's code in the processes of a distributed stage, which are reported once.

Mostly all processes raise the same error at the same point. Where only a worker fails, the process of rank 0 notices no
more than that a connection was closed; so the worker leaves its report in the stage's folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fgrl.base.errors import UserCodeError
from fgrl.base.files import write_json
from fgrl.base.sanitizing import hide_in
from fgrl.kinds.functions import as_user_error
from fgrl.training import launching

REPORT = "failed-rank-{}.json"


@contextmanager
def silent(folder: Path, rank: int) -> Iterator[None]:
    """In a worker: an error of the user's code is left for rank 0, and raised no further. Other errors pass."""
    try:
        yield
    except Exception as error:
        user = as_user_error(error)
        if user is None:
            raise
        write_json(folder / REPORT.format(rank), hide_in({"report": str(user), "details": user.details}))


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """In the process of rank 0, around an attempt at a stage: what workers left of an earlier attempt is gone, and an
    error that follows from that of a worker is replaced by the worker's.
    """
    for left in folder.glob(REPORT.format("*")):
        left.unlink()
    launching.forget_waits(folder)
    with reported_left(folder):
        yield


@contextmanager
def reported_left(folder: Path) -> Iterator[None]:
    """Replace an error that is not the user's by the one that a worker left, if one did."""
    try:
        yield
    except Exception as error:
        if as_user_error(error) is not None:
            raise
        for file in sorted(folder.glob(REPORT.format("*"))):
            left_by_worker = json.loads(file.read_text(encoding="utf-8"))
            raise UserCodeError(left_by_worker["report"], left_by_worker["details"]) from error
        raise
