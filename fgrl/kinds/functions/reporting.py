"""Errors of the user's code in four lines: their own file and line first, then what was expected, then the next step.

The pipeline adds a fifth line, about the traceback in run.log.
"""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

from fgrl.base.errors import FAILED, FgrlError, UserCodeError, disk_error
from fgrl.registry.explaining import nearby
from fgrl.registry.outside import is_user_file

WIDTH = 200
"""Maximum number of characters in a line of a report."""


def report(file: Path | str, line: int, problem: str, *notes: str) -> str:
    """Return the lines of a report: `rewards.py:7: problem`, the source line, and at most two notes."""
    linecache.checkcache(str(file))
    source = linecache.getline(str(file), line).strip("\n")
    excerpt = [f"{line:>4} | {source}"] if source.strip() else []
    shown = [f"    = {note}" for note in notes if note][:2]
    return "\n".join(map(_one_line, [f"{nearby(Path(file))}:{line}: {problem}", *excerpt, *shown]))


def as_user_error(
    error: BaseException, *notes: str, called: str = "", at: tuple[Path, int] | None = None
) -> UserCodeError | None:
    """Return the report about an exception from the user's code (a component of an imported file, a function). Return
    None for any other error, and for errors that fgrl raises for people to act on.

    called: the function that raised. at: place to point to if none of the function's lines was running; the error is
    then certainly the function's.
    """
    if isinstance(error, UserCodeError):
        return error
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, FgrlError) and error.exit_code != FAILED):
        return None
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(code, line) for code, line in frames if is_user_file(code.co_filename)]
    innermost = bool(own) and own[-1] == frames[-1]
    full = "OutOfMemoryError" if isinstance(error, MemoryError) and not innermost else type(error).__name__
    if at is None and (not own or full == "OutOfMemoryError" or disk_error(error) is not None):
        return None
    file, line = (own[-1][0].co_filename, own[-1][1]) if own else at or ("", 0)
    raised = ": ".join(filter(None, [type(error).__name__, " ".join(str(error).split())]))
    what = f"{called or own[-1][0].co_qualname} raised {raised}"
    if own and not innermost:
        inside = "/".join(Path(frames[-1][0].co_filename).parts[-2:])
        notes = (f"raised in {inside}:{frames[-1][1]}, which this line called", *notes)
    return UserCodeError(report(file, line, what, *notes), "".join(traceback.format_exception(error)).rstrip())


def _one_line(text: str) -> str:
    text = " ".join(text.splitlines())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 4]} ..."
