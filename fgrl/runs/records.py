"""The records of a run and of a stage: what `Run` and `Stage`, their only readers and writers, keep in their files.

    runs/<recipe>/<UTC>-<short key>/summary.json    `RunRecord`, written again after every stage
    runs/<recipe>/<UTC>-<short key>/inputs.json     what its stages read, written at its start
    runs/stages/<stage>-<key>/stage.json            `StageRecord`, written last, by rename: unfinished without it
    runs/stages/<stage>-<key>/alarms.json           its alarms, written when they go off, until it is finished

A stage counts as finished while its product is what the record lists. Sizes are compared whenever a record is read,
contents before another stage reads the product and by `fgrl doctor RUNS`.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from fgrl.base.errors import DONE, INTERRUPTED, FgrlError
from fgrl.types import AlarmRecord, Record

RUN, STAGE, ALARMS = "summary.json", "stage.json", "alarms.json"


class Broken(FgrlError):
    """A stage's folder holds something else than its record says; the message names the file. It counts as
    unfinished.
    """


class Unfinished(Broken):
    """There is no record yet."""


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
    """UTC, as `2026-05-01T09:30:00Z`."""
    seconds: float
    upstream: dict[str, str] = {}
    """Keys of the stages whose products it read, by the names that its settings have for them."""
    summary: dict[str, Any]
    """Report of the stage at its end."""
    identity: dict[str, Any]
    """Content of which its key is the hash."""
    versions: dict[str, str] = {}
    files: dict[str, ProductFile]
    """Files of the product, by relative path."""
    alarms: list[AlarmRecord] | None = None
    """Those of a training, in the order in which they went off; None: nothing watched."""

    @property
    def limit(self) -> int | None:
        """`--limit` of a trial."""
        return self.identity.get("limit")


# -- runs --------------------------------------------------------------------------------------------------------------


class Lenient(Record):
    """A record whose damaged parts are the fields' defaults: what failed is shown too. The context's "notes" name
    them.
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
    """Its folder, seen from that of the run."""
    cached: bool = False
    done: bool = False
    why: str = ""
    """Reason for running it, or that it is from the cache."""
    seconds: float | None = None
    summary: dict[str, Any] = {}
    """Report of the stage at its end."""


class RunRecord(Lenient):
    """An invocation, as far as it has come."""

    recipe: str = ""
    path: str = ""
    """The recipe's address, as it was given."""
    about: str = ""
    seed: int = 0
    key: str = ""
    """Eight digits that stand for the keys of all its stages."""
    command: list[str] = []
    sweep: str = ""
    """Name of the folder of the sweep that it belongs to."""
    started: str = ""
    """UTC, as `2026-05-01T09:30:00Z`."""
    finished: str | None = None
    seconds: float | None = None
    exit: int | None = None
    """Exit code; None: it has not ended, or was killed."""
    error: str = ""
    stages: dict[str, UsedStage] = {}
    """Those that it has come to, by name."""
    conclusions: dict[str, Any] | None = None
    """What `fgrl.runs.results` concluded; None while it has not ended."""

    @property
    def state(self) -> str:
        """Either "finished", "failed", "interrupted", or "unfinished": it was killed, or works."""
        return {None: "unfinished", DONE: "finished", INTERRUPTED: "interrupted"}.get(self.exit, "failed")
