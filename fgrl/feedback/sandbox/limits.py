"""Limits of untrusted code: its resources, its packages, and the required strength of the sandbox around it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fgrl.registry import Settings, Unkeyed

Strength = Literal["strong", "weak", "none"]
RANK: dict[Strength, int] = {"none": 0, "weak": 1, "strong": 2}


class SandboxSpec(Settings):
    """Sandbox in which a component runs code: its strength, and the resources of one call. A call that exceeds a limit
    is killed; `Outcome.kind` names the limit.
    """

    require: Annotated[Literal["strong", "weak"], Unkeyed] = "strong"
    """Minimum strength of the sandbox. `weak` limits time, memory and output, but the code can read and write all your
    files: use it only for code that you trust.
    """
    seconds: float = Field(5.0, gt=0, le=600)
    """Time limit of a call in seconds (wall-clock). The limit of processor time is this value, rounded up, plus one
    second.
    """
    memory_mb: int = Field(512, ge=64)
    """Limit of the address space of the process, including its interpreter (about 30 MB)."""
    output_kb: int = Field(64, ge=0)
    """Limit of the output (stdout and stderr)."""
    result_kb: int = Field(64, ge=1)
    """Limit of the returned value as JSON."""
    folder_mb: int = Field(16, ge=1)
    """Limit of the code's own folder, which is empty at the start of each call and deleted afterwards. The weak sandbox
    only limits each file.
    """
    packages: list[str] = []
    """Installed packages that code may import, e.g. [numpy, pytest]: these, the packages that they require, and no
    others. If it is empty, the code has the standard library alone.
    """


class CheckerSandbox(SandboxSpec):
    """Sandbox for code that comes with a data set. Only the recipe can configure it; settings in the data are
    refused.
    """

    require: Literal["strong", "weak"] = "strong"
    """Minimum strength of the sandbox. `weak` limits time, memory and output, but the code can read and write all your
    files: use it only for code that you trust. The value is written into the samples, so a change creates them again.
    """

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults as JSON, for a check in the data."""
        return self.model_dump(exclude_defaults=True)


class ProgramSandbox(CheckerSandbox):
    """Sandbox for candidate programs and the tests that come with a data set."""

    result_kb: int = Field(16384, ge=1)
    """Limit of the recorded calls of the tests as JSON. The record may use half of it. Without a record, a pass is not
    checked again.
    """
