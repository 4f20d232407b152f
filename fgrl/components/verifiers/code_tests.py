"""Tests from a prompt, executed on the program in the response. Both run only in the sandbox."""

from __future__ import annotations

from fgrl.feedback.rules.programs.testing import ProgramTests
from fgrl.registry import register


@register("code:tests")
class CodeTests(ProgramTests):
    """The program in the response passes its tests.

    The program is the last fenced block of Python that defines `entry_point`, or else the last block, or else the whole
    response. A program that raises, ends the process, takes too long or exceeds another limit fails. The verdict is
    missing (undecided) only if the tests themselves cannot be run, or if the sandbox fails. `docs/how-to/code.md`
    describes how a pass is confirmed and what a program could still fake.
    """
