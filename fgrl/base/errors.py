"""Everything that fgrl raises on purpose, and the exit code that each leads to."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

DONE, FAILED, WRONG_REQUEST, POINT_FAILED, INTERRUPTED = 0, 1, 2, 9, 130
"""Exit codes that belong to no class: no error; a bug, with its traceback; a mistake in a recipe or a command; a point of
a sweep that failed, whose own code the sweep lists; Ctrl-C.
"""


class FgrlError(Exception):
    """An error that a person can act on: the message names the place and the next step.

    A class that keeps `exit_code` 1 is caught by fgrl itself; when it escapes, that is a bug.
    """

    exit_code: int = FAILED
    heading: ClassVar[str] = ""
    """What the message starts with."""
    told = False
    """All processes of a stage raise it."""

    def explanation(self) -> str:
        """Return the message with its heading."""
        return f"{self.heading}{self}"

    def at_terminal(self) -> str:
        """Return the message with the name of the program that it comes from."""
        return f"fgrl: {self.explanation()}"

    def as_json(self) -> dict[str, Any]:
        """Return what a command prints with `--json`."""
        return {"error": self.at_terminal(), "exit": self.exit_code}


class UsageError(FgrlError):
    """A command that cannot be carried out as it stands."""

    exit_code = WRONG_REQUEST


class UnknownNeed(UsageError, ValueError):
    """A component asks for something that nothing computes."""


class PolicyNotLent(UsageError):
    """A component uses a policy that it kept beyond the responses that it was lent for, or the wrong one answered."""


class Unavailable(FgrlError):
    """The recipe asks for a package, a device, a model or an endpoint that this machine does not have or cannot
    reach.
    """

    exit_code = WRONG_REQUEST


class DataError(FgrlError):
    """Data that cannot be used. The message names the place and the next step."""

    exit_code = 3
    heading = "data: "


class OverBudget(FgrlError):
    """The money, tokens or time that the recipe allows are spent."""

    exit_code = 4
    heading = "over budget: "


class Stopped(FgrlError):
    """Training diverged or an alarm stopped it. The message names the cause and shows an example."""

    exit_code = 5
    heading = "stopped: "


class DiskError(FgrlError):
    """The disk is full, or a file or folder may not be written."""

    exit_code = 6
    heading = "disk: "


class UserCodeError(FgrlError):
    """A function or a component of the user raised, or returned what cannot be used.

    The message is a short report that begins with the user's own file and line.
    """

    exit_code = 7

    def __init__(self, report: str, details: str = "") -> None:
        super().__init__(report, details)
        self.details = details
        """The traceback, for the log; empty where nothing was raised."""

    def __str__(self) -> str:
        return str(self.args[0])

    def at_terminal(self) -> str:
        """Return the report, which begins with its own place."""
        return f"{self}\n    = correct it and run the same command"


class RankLost(FgrlError):
    """A process of a training on several devices has ended, or does not answer. The message names its rank and the
    reason.
    """

    exit_code = 8
    heading = "lost: "


class EngineFailed(FgrlError):
    """The servers of an engine do not start, end again and again, or give answers that are none."""

    exit_code = 8
    heading = "engine: "


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, none left for this user, and a file at the largest size that is allowed."""
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG)
FULL_IN_WORDS = (
    *map(os.strerror, FULL), "PytorchStreamWriter failed writing file", "database or disk is full", "disk I/O error",
)  # fmt: skip
REFUSED_IN_WORDS = ("attempt to write a readonly database", "unable to open database file")
"""How libraries that write in C, C++ or Rust report it."""


def disk_error(error: BaseException) -> DiskError | None:
    """Return the `DiskError` that an error of the operating system or of a library stands for; None for any other
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
    """A second Ctrl-C: what was not saved is lost."""


class NotYet(FgrlError):
    """A plan asks for the product of a stage that has not run."""


class Undecided(FgrlError):
    """Whether a response keeps a rule could not be determined. The verdict is missing, which is not "broken"."""


@dataclass(frozen=True)
class Requires:
    """An optional package: `Requires("emoji", "format:emoji asks the package emoji", extra="rules").check()`."""

    package: str
    """Name of the module."""
    purpose: str
    """What needs it: the beginning of a sentence that ends with ", which is not installed"."""
    extra: str
    """The extra of fgrl that installs it."""

    def check(self) -> None:
        """Raise `Unavailable`, with the command that installs it, where the package is not installed."""
        if find_spec(self.package) is None:
            raise Unavailable(f"{self.purpose}, which is not installed: pip install 'fgrl[{self.extra}]'")
