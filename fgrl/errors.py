"""Everything that fgrl raises on purpose, and the exit code that each leads to."""

from __future__ import annotations

from typing import ClassVar


class FgrlError(Exception):
    """An error that a person can act on: the message names the place and the next step."""

    exit_code: ClassVar[int] = 1
    heading: ClassVar[str] = ""
    """What the message starts with at a terminal."""


class Unavailable(FgrlError):
    """The recipe asks for a package or a device that this machine does not have."""

    exit_code = 2


class DataError(FgrlError):
    """Data that cannot be used. The message says where and what to do next."""

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


class NotYet(FgrlError):
    """A plan asks for the product of a stage that has not run."""


class Undecided(FgrlError):
    """Whether a response keeps a rule could not be determined. The verdict is missing, which is not "broken"."""
