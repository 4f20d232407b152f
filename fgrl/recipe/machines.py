"""Machine files: where the stages of a recipe train. They change neither results nor keys."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from fgrl.errors import UsageError
from fgrl.kinds import Accelerator
from fgrl.recipe.loading import Recipe
from fgrl.registry import Settings, alternatives
from fgrl.registry.settings_file import Shelf, read_settings


class Place(Settings):
    """Devices of a training. Null: as the recipe says."""

    devices: int | None = Field(None, ge=1, le=100_000)
    """Processes on each node, one per device."""
    nodes: int | None = Field(None, ge=1, le=100_000)
    """Machines that train together."""
    accelerator: Accelerator | None = None
    """Kind of device."""


class Machines(Settings):
    """Where the stages of a recipe train."""

    train: Place = Place()
    """For every stage that trains."""
    stages: dict[str, Place] = {}
    """For single stages, by name, instead of `train`."""


def placed(file: Path, recipe: Recipe) -> list[str]:
    """Return the overrides of a recipe that a machine file stands for. Raises `Problems`, and `UsageError` for a stage that
    does not train.
    """
    machines = read_settings(Machines, str(file), Shelf(Path(__file__).parent))
    training = [name for name, stage in recipe.stages.items() if "train" in type(stage).model_fields]
    for name in machines.stages:
        if name not in training:
            hint = alternatives(name, training)
            raise UsageError(f"{file}: stages.{name}: the recipe has no stage of this name that trains; {hint}")
    return [
        f"stages.{name}.train.{field}={value}"
        for name in training
        for field, value in (machines.train.model_dump() | _given(machines.stages.get(name))).items()
        if value is not None
    ]


def _given(place: Place | None) -> dict[str, object]:
    return {} if place is None else place.model_dump(exclude_none=True)
