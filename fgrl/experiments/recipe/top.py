"""The keys at the top of a recipe."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from fgrl.experiments.recipe.tracking import MLflow, TensorBoard, Tracking, Wandb
from fgrl.kinds import Stage
from fgrl.registry import Settings

LARGEST_SEED = 2**32 - 1
"""Maximum seed. Seeds of rounds and of libraries are derived from it, and must fit into 63 bits."""


class Tracker(Settings):
    """Destination of metrics. A bare string is a tracker without settings: `tensorboard`."""

    tensorboard: TensorBoard | None = None
    """Event files for TensorBoard."""
    wandb: Wandb | None = None
    """Weights & Biases: `{wandb: {project: ...}}`."""
    mlflow: MLflow | None = None
    """MLflow: `{mlflow: {experiment: ...}}`."""

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {value: {}} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> Tracker:
        for name in ("wandb", "mlflow"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"{name}: wants its settings (fgrl schema)")
        return self


class Row(Settings):
    """A variant of a recipe: `fgrl run FILE::ROW`."""

    about: str
    """Purpose of the recipe, in one sentence."""
    extends: str | list[str] = []
    """Rows of this recipe that this row changes; the last one takes precedence."""
    imports: list[str] = []
    """Python files with components, relative to this recipe."""
    vars: dict[str, Any] = {}
    """Values for ${vars.name}; null: to be set by the user."""
    seed: int = Field(0, ge=0, le=LARGEST_SEED)
    """Seed of everything random."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Meaning of `dtype: auto` and `precision: auto`: float32, bfloat16, or auto, which means the type that the device
    multiplies natively.
    """
    track: list[Tracker] = []
    """Destinations of metrics besides the run's own logs: tensorboard, {wandb: {project: ...}}, {mlflow: {experiment:
    ...}}.
    """
    stages: dict[str, Stage] = Field(min_length=1)
    """The steps by name; ${out:name} is the product of a step."""

    @field_validator("about")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty; say what the recipe is for")
        return value

    @model_validator(mode="after")
    def _named_once(self) -> Row:
        if len(self.trackers) < sum(len(track.model_fields_set) for track in self.track):
            raise ValueError("track: a tracker is named twice")
        return self

    @property
    def trackers(self) -> Tracking:
        """Return the settings of each tracker by its name."""
        return {name: getattr(track, name) or TensorBoard() for track in self.track for name in track.model_fields_set}


class Top(Row):
    """A recipe of fgrl."""

    extends: str = ""
    """Recipe that this recipe changes: a file, or a row of a file."""
    rows: dict[str, Row] = {}
    """Variants of this recipe by name: `fgrl run FILE::ROW`."""
