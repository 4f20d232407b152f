"""Whatever ends an invocation becomes an exit code and a message, in one place."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest

from fgrl.base.errors import Aborted, DataError, NotYet, Stopped
from fgrl.experiments.pipeline.endings import ChildFailed, ending
from fgrl.experiments.pipeline.invocation import Invocation


class OutOfMemoryError(RuntimeError):
    """Has the name of torch's."""


@pytest.mark.parametrize(
    ("error", "code", "message", "bug"),
    [
        (DataError("no rows"), 3, "data: no rows", False),
        (Stopped("no reward"), 5, "stopped: no reward", False),
        (ChildFailed(4), 4, "the process of a distributed stage ended with 4", False),
        (ChildFailed(1), 1, "the process of a distributed stage ended with 1", False),
        (ChildFailed(-9), 1, "the process of a distributed stage ended with -9", False),
        (KeyboardInterrupt(), 130, "interrupted; what is finished is kept", False),
        (Aborted("aborted"), 130, "aborted; run the same command to continue from the last checkpoint", False),
        (OSError(errno.ENOSPC, "full"), 6, "disk: the disk is full", False),
        (RuntimeError(f"safetensors: {os.strerror(errno.ENOSPC)}"), 6, "disk: the disk is full", False),
        (MemoryError(), 1, "out of memory: lower train.micro_batch_size", True),
        (OutOfMemoryError("CUDA"), 1, "out of memory: lower train.micro_batch_size", True),
        (OSError(errno.EACCES, "no access"), 1, "PermissionError: ", True),
        (ValueError("a bug"), 1, "ValueError: a bug", True),
        (NotYet("policy"), 1, "NotYet: policy", True),
    ],
)
def test_every_error_has_one_ending(error, code, message, bug, tmp_path):
    end = ending(error, tmp_path)
    assert (end.exit_code, end.bug) == (code, bug)
    assert end.message.startswith(message)


def test_an_invocation_whose_folder_was_removed_by_somebody_else_ends_without_another_error(tmp_path):
    summary = SimpleNamespace(folder="there", report="there")
    unfinished: Any = SimpleNamespace(_new=[], folder=tmp_path / "runs" / "removed", summary=summary)
    Invocation.remove(unfinished)
    assert summary.folder is None
