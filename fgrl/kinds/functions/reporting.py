"""Errors of the user's code in four lines: their own file and line first, then what was expected, then the next step.

The pipeline adds a fifth line, about the traceback in run.log.
"""

from __future__ import annotations

import json
import linecache
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from fgrl.base.errors import FAILED, FgrlError, UserCodeError, disk_error
from fgrl.registry.explaining import nearby
from fgrl.registry.names import NotRegistered, name_of
from fgrl.registry.outside import is_user_file
from fgrl.registry.settings import Component

WIDTH = 200
"""Characters of a line of a report."""


def report(file: Path | str, line: int, problem: str, *notes: str) -> str:
    """`rewards.py:7: problem`, the line itself, and at most two notes."""
    linecache.checkcache(str(file))
    source = linecache.getline(str(file), line).strip("\n")
    excerpt = [_one_line(f"{line:>4} | {source}")] if source.strip() else []
    shown = [_one_line(f"    = {note}") for note in notes if note][:2]
    return "\n".join([_one_line(f"{nearby(Path(file))}:{line}: {problem}"), *excerpt, *shown])


def raised(error: BaseException, what: str, *notes: str, at: tuple[Path, int]) -> UserCodeError:
    """Return the report about an exception that a user's function raised; `at`: where to point when none of its lines
    was running.
    """
    place = _own_line(error)
    file, line = (place.file, place.line) if place is not None else at
    where = _elsewhere(error, place)
    return UserCodeError(
        report(file, line, f"{what} raised {described(error)}", *([where] if where else []), *notes), details(error)
    )


def as_user_error(error: BaseException) -> UserCodeError | None:
    """Return the report about an exception that came out of the user's code (a component of an imported file, a
    function); None for any other error, and for those that fgrl raises for people to act on.
    """
    if isinstance(error, UserCodeError):
        return error
    if isinstance(error, FgrlError) and error.exit_code != FAILED:
        return None
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "OutOfMemoryError":
        return None
    place = _own_line(error)
    if place is None or disk_error(error) is not None or (isinstance(error, MemoryError) and not place.innermost):
        return None
    return UserCodeError(
        report(
            place.file, place.line, f"{place.function} raised {described(error)}",
            " ".join(filter(None, [place.component, _elsewhere(error, place)])),
        ),
        details(error),
    )  # fmt: skip


def described(error: BaseException) -> str:
    """`ValueError: no rows`, on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception as failure:  # the user's own class
        text = f"(its text cannot be had: {type(failure).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def details(error: BaseException) -> str:
    """Return the traceback."""
    return "".join(traceback.format_exception(error)).rstrip()


@dataclass(frozen=True)
class _OwnLine:
    """The innermost line of the user that was running."""

    file: str
    line: int
    function: str
    component: str
    """Component that it belongs to, in words; empty when that is not known."""
    innermost: bool
    """Did this very line raise, and not something that it called?"""


def _own_line(error: BaseException) -> _OwnLine | None:
    if isinstance(error, SyntaxError) and error.filename is not None and is_user_file(error.filename):
        return _OwnLine(error.filename, error.lineno or 1, "the file", "", True)
    own, trace, component = None, error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_user_file(code.co_filename):
            component = _component(trace.tb_frame) or component
            own = _OwnLine(code.co_filename, trace.tb_lineno, code.co_qualname, component, trace.tb_next is None)
        trace = trace.tb_next
    return own


def _component(frame: FrameType) -> str:
    owner: Any = frame.f_locals.get("self")
    if not isinstance(owner, Component):
        return ""
    try:
        kind, name = name_of(owner)
    except NotRegistered:
        return ""
    return f'this is the {kind} "{name}".'


def _elsewhere(error: BaseException, place: _OwnLine | None) -> str:
    """Return the place where a library raised that the user's line had called."""
    trace: TracebackType | None = error.__traceback__
    if place is None or place.innermost or trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"raised in {_short(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}, which this line called"


def _short(file: str) -> str:
    """`torch/functional.py` of a file of an installed package, `json/decoder.py` of one of the standard library."""
    parts = Path(file).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            return "/".join(parts[parts.index(folder) + 1 :])
    library = Path(json.__file__).parents[1]
    if Path(file).is_relative_to(library):
        return Path(file).relative_to(library).as_posix()
    return nearby(Path(file)) if Path(file).is_absolute() else file


def _one_line(text: str) -> str:
    text = " ".join(text.splitlines())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 4]} ..."
