"""Reply of a process to the process that started it. It is written to a file, because other output also goes to stdout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fgrl.base import files

REPLY = "FGRL_REPLY"
"""Environment variable of a process that must reply: the path of the file for the reply."""
_expected: list[Path] = []


def expect() -> None:
    """Take the path of the reply file from the environment. Must run first in every process, so that its child
    processes do not write the file.
    """
    if named := os.environ.pop(REPLY, ""):
        _expected.append(Path(named))


def reply(value: Any) -> bool:
    """Write the reply of this process. Return False if no reply is expected."""
    for file in _expected:
        files.write_json(file, value, default=str)
    return bool(_expected)
