"""How a process tells the one that started it what came of it: in a file, since much else writes to its stdout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fgrl.base import files

REPLY = "FGRL_REPLY"
"""Set for a process that is to reply: the file."""
_expected: list[Path] = []


def expect() -> None:
    """Run first in every process: what it starts replies to nobody."""
    if named := os.environ.pop(REPLY, ""):
        _expected.append(Path(named))


def reply(value: Any) -> bool:
    """Write the reply of this process. Returns False where none is expected."""
    for file in _expected:
        files.write_json(file, value, default=str)
    return bool(_expected)
