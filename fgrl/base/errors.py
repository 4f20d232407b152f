"""Exceptions that fgrl raises on purpose, and the exit code of each."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

DONE, FAILED, WRONG_REQUEST, POINT_FAILED, INTERRUPTED = 0, 1, 2, 9, 130
"""Exit codes that belong to no class. In order: success; a bug, shown with its traceback; a mistake in a recipe or a
command; a failed point of a sweep, whose own exit code the sweep lists; Ctrl-C.
"""


class FgrlError(Exception):
    """An error that a user can fix. The message names the place and the next step.

    Errors of a class that keeps `exit_code` 1 are caught inside fgrl. If one reaches the user, it is a bug.
    """

    exit_code: int = FAILED
    heading: ClassVar[str] = ""
    """Beginning of the message."""
    told = False
    """Return True if all processes of a stage raise the error."""

    def explanation(self) -> str:
        """Return the message, preceded by its heading."""
        return f"{self.heading}{self}"

    def at_terminal(self) -> str:
        """Return the message, preceded by the name of the program that reports it."""
        return f"fgrl: {self.explanation()}"

    def as_json(self) -> dict[str, Any]:
        """Return the output of a command with `--json`."""
        return {"error": self.at_terminal(), "exit": self.exit_code}


class UsageError(FgrlError):
    """Error for a command that cannot be carried out as it was given."""

    exit_code = WRONG_REQUEST


class UnknownNeed(UsageError, ValueError):
    """Error for a component that requests a value that nothing computes."""


class PolicyNotLent(UsageError):
    """Error for a component that uses a policy after it has scored the responses for which the policy was lent, or for
    answers of a model with other weights than the recipe names.
    """


class Unavailable(FgrlError):
    """Error for a package, device, model or endpoint that the recipe requires and that this machine does not have or
    cannot reach.
    """

    exit_code = WRONG_REQUEST


class DataError(FgrlError):
    """Error for data that cannot be used. The message names the place and the next step."""

    exit_code = 3
    heading = "data: "


class OverBudget(FgrlError):
    """Error for a recipe whose limit on money, tokens or time is reached."""

    exit_code = 4
    heading = "over budget: "


class Stopped(FgrlError):
    """Error for a training that diverged or was stopped by an alarm. The message names the cause and shows an example."""

    exit_code = 5
    heading = "stopped: "


class DiskError(FgrlError):
    """Error for a full disk, and for a file or folder that is not writable."""

    exit_code = 6
    heading = "disk: "


class UserCodeError(FgrlError):
    """Error for a function or component of the user that raised an exception or returned an unusable value.

    The message is a short report that begins with the file and line of the user's code.
    """

    exit_code = 7

    def __init__(self, report: str, details: str = "") -> None:
        super().__init__(report, details)
        self.details = details
        """The traceback, for the log; empty if no exception was raised."""

    def __str__(self) -> str:
        return str(self.args[0])

    def at_terminal(self) -> str:
        """Return the report, which already begins with the place of the error."""
        return f"{self}\n    = correct it and run the same command"


class RankLost(FgrlError):
    """Error for a training on several devices in which a process has ended or does not respond. The message names its
    rank and the reason.
    """

    exit_code = 8
    heading = "lost: "


class EngineFailed(FgrlError):
    """Error for servers of an engine that do not start, that crash repeatedly, or that return invalid answers."""

    exit_code = 8
    heading = "engine: "


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, an exhausted quota, and a file that has reached the maximum size."""
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG)
FULL_IN_WORDS = (
    *map(os.strerror, FULL), "PytorchStreamWriter failed writing file", "database or disk is full", "disk I/O error",
)  # fmt: skip
REFUSED_IN_WORDS = ("attempt to write a readonly database", "unable to open database file")
"""Messages with which libraries written in C, C++ or Rust report that a file cannot be written."""


def disk_error(error: BaseException) -> DiskError | None:
    """Return the `DiskError` that corresponds to an error of the operating system or of a library; None for any other
    error.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL or any(words in str(error) for words in FULL_IN_WORDS):
        return DiskError(
            f"the disk is full, or a file has reached the size that is allowed ({error}): make room and run the same command; "
            "finished stages stay"
        )
    if any(words in str(error) for words in REFUSED_IN_WORDS):
        return DiskError(f"{error}: change the rights of the folder `cache`, or choose another folder with --runs")
    if isinstance(error, OSError) and number in REFUSED and error.filename is not None:
        return DiskError(f"{error.filename}: {error.strerror}: change its rights, or name another file or folder")
    return None


class Aborted(KeyboardInterrupt):
    """Interruption by a second Ctrl-C. Unsaved work is lost."""


class NotYet(FgrlError):
    """Error for a plan that needs the product of a stage that has not run yet."""


class Undecided(FgrlError):
    """Error for a rule whose verdict on a response could not be determined. The verdict is then missing, which is not
    the same as "violated".
    """


@dataclass(frozen=True)
class Requires:
    """Requirement of an optional package: `Requires("emoji", "format:emoji asks the package emoji",
    extra="rules").check()`.
    """

    package: str
    """Name of the Python module."""
    purpose: str
    """Beginning of the error message: a clause that names the feature, followed by ", which is not installed"."""
    extra: str
    """The extra of fgrl that installs the package."""

    def check(self) -> None:
        """Raise `Unavailable`, with the command that installs the package, if it is not installed."""
        if find_spec(self.package) is None:
            raise Unavailable(f"{self.purpose}, which is not installed: pip install 'fgrl[{self.extra}]'")
