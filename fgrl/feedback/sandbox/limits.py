"""What untrusted code gets: its limits, its packages, and the required strength of the sandbox around it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fgrl.registry import Settings, Unkeyed

Strength = Literal["strong", "weak", "none"]
RANK: dict[Strength, int] = {"none": 0, "weak": 1, "strong": 2}


class SandboxSpec(Settings):
    """The sandbox that a component runs code in: its strength, and the resources of one call. A call that exceeds a
    limit is killed; `Outcome.kind` names the limit.
    """

    require: Annotated[Literal["strong", "weak"], Unkeyed] = "strong"
    """The least strength. `weak` limits time, memory and output, but code can read and write whatever you can: only for
    code that you trust.
    """
    seconds: float = Field(5.0, gt=0, le=600)
    """Wall-clock time. The limit of processor time is the same, rounded up, plus one second."""
    memory_mb: int = Field(512, ge=64)
    """Address space of the process, including its interpreter (about 30 MB)."""
    output_kb: int = Field(64, ge=0)
    """Output (stdout and stderr)."""
    result_kb: int = Field(64, ge=1)
    """The returned value as JSON."""
    folder_mb: int = Field(16, ge=1)
    """Its own folder, which is empty at the start of each call and deleted afterwards. The weak sandbox only limits
    each file.
    """
    packages: list[str] = []
    """Installed packages that code may import, e.g. [numpy, pytest]: these, the packages that they require, and no
    others. Without any it has the standard library alone.
    """


class CheckerSandbox(SandboxSpec):
    """The sandbox for code that comes with a data set. Only the recipe can configure it; settings in the data are
    refused.
    """

    require: Literal["strong", "weak"] = "strong"
    """The least strength. `weak` limits time, memory and output, but code can read and write whatever you can: only for
    code that you trust. It is written into the samples, so a change creates them again.
    """

    def given(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, for a check in the data, as JSON."""
        return self.model_dump(exclude_defaults=True)


class ProgramSandbox(CheckerSandbox):
    """The sandbox for candidate programs and the tests that come with a data set."""

    result_kb: int = Field(16384, ge=1)
    """The recorded calls of the tests as JSON; the record may have half of it, and without a record a pass is not
    checked again.
    """
