"""Who opens the records of runs and stages: an audit hook of this process, which cannot be taken off again."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import fgrl
from fgrl.runs.records import RUN, STAGE

PACKAGE, TESTS = str(Path(fgrl.__file__).parent) + "/", str(Path(__file__).parents[1]) + "/"
READER, HELPER = f"{PACKAGE}runs/", f"{PACKAGE}base/files.py"
opened: list[str] = []
"""The code of fgrl that opened a record, in order: its file."""


def others() -> list[str]:
    """Code of fgrl outside of `runs/` that opened a record, or gave another file its name."""
    return [file for file in opened if not file.startswith(READER)]


def watch() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "os.rename"):
        return
    path = arguments[0] if event == "open" else arguments[1]
    if not isinstance(path, str) or not path.endswith((f"/{RUN}", f"/{STAGE}")):
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(TESTS):
            return
        if file.startswith(PACKAGE) and file != HELPER:
            opened.append(file)
            return
        frame = frame.f_back
