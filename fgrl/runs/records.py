"""Records of a run and of a stage. `Run` and `Stage` are the only readers and writers of their files.

    runs/<recipe>/<UTC>-<short key>/summary.json    `RunRecord`, written again after every stage
    runs/<recipe>/<UTC>-<short key>/inputs.json     inputs of its stages, written at its start
    runs/stages/<stage>-<key>/stage.json            `StageRecord`, written last, by rename: unfinished without it
    runs/stages/<stage>-<key>/alarms.json           its alarms, written when they go off, until it is finished

A stage counts as finished as long as its product matches the record. Sizes are compared whenever a record is read,
contents before another stage reads the product and by `fgrl doctor RUNS`.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from fgrl.base.errors import DONE, INTERRUPTED, FgrlError
from fgrl.types import AlarmRecord, Record

RUN, STAGE, ALARMS = "summary.json", "stage.json", "alarms.json"


class Broken(FgrlError):
    """A stage's folder does not match its record; the message names the file. The stage counts as unfinished."""


class Unfinished(Broken):
    """The stage has no record yet."""


# -- stages ------------------------------------------------------------------------------------------------------------


class ProductFile(Record):
    """A file of a stage's product."""

    bytes: int
    sha256: str


class StageRecord(Record):
    """A finished stage."""

    model_config = ConfigDict(extra="ignore")

    name: str
    key: str
    component: str
    """Name of the stage's component: "finetune", "rl", ..."""
    makes: str = ""
    """Type of the product: "Checkpoint", "Samples", ..."""
    recipe: str
    made: str
    """Time in UTC, as `2026-05-01T09:30:00Z`."""
    seconds: float
    upstream: dict[str, str] = {}
    """Keys of the stages whose products it read, by their names in its settings."""
    summary: dict[str, Any]
    """Report of the stage at its end."""
    identity: dict[str, Any]
    """Content whose hash is its key."""
    versions: dict[str, str] = {}
    files: dict[str, ProductFile]
    """Files of the product, by relative path."""
    alarms: list[AlarmRecord] | None = None
    """Alarms of a training, in the order in which they were raised; None if nothing was watched."""

    @property
    def limit(self) -> int | None:
        """Return `--limit` of a trial, or None."""
        return self.identity.get("limit")


# -- runs --------------------------------------------------------------------------------------------------------------


class Lenient(Record):
    """Record in which damaged fields have their defaults, so that failed runs can be shown too. The context's "notes"
    name these fields.
    """

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError:
            if info.context is None:
                raise
            info.context["notes"].append(f"{RUN}: {info.field_name} cannot be read.")
            return cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)


class UsedStage(Lenient):
    """A stage of a run, which may be from the cache."""

    key: str = ""
    kind: str = ""
    """Name of the stage's component."""
    dir: str = ""
    """Path of its folder, relative to the run's folder."""
    cached: bool = False
    done: bool = False
    why: str = ""
    """Reason for running it, or that it is from the cache."""
    seconds: float | None = None
    summary: dict[str, Any] = {}
    """Report of the stage at its end."""


class RunRecord(Lenient):
    """Record of an invocation, up to its present state."""

    recipe: str = ""
    path: str = ""
    """The recipe's address, as given."""
    about: str = ""
    seed: int = 0
    key: str = ""
    """Eight digits that identify the combination of the keys of all its stages."""
    command: list[str] = []
    sweep: str = ""
    """Name of the folder of the sweep that it belongs to."""
    started: str = ""
    """Time in UTC, as `2026-05-01T09:30:00Z`."""
    finished: str | None = None
    seconds: float | None = None
    exit: int | None = None
    """Exit code; None if it has not ended, or was killed."""
    error: str = ""
    stages: dict[str, UsedStage] = {}
    """Stages that it has reached, by name."""
    conclusions: dict[str, Any] | None = None
    """Conclusions of `fgrl.runs.results`; None while it has not ended."""

    @property
    def state(self) -> str:
        """Return "finished", "failed", "interrupted", or "unfinished" (killed, or still working)."""
        return {None: "unfinished", DONE: "finished", INTERRUPTED: "interrupted"}.get(self.exit, "failed")
