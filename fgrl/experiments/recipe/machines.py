"""Machine files: the devices on which the stages of a recipe train, and those of their engines. They change neither
results nor keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from fgrl.base.errors import UsageError
from fgrl.experiments.recipe.loading import Recipe
from fgrl.kinds import Accelerator, Engine
from fgrl.registry import Settings, Unkeyed, alternatives, name_of, walk
from fgrl.registry.annotations import marker
from fgrl.registry.settings_file import Shelf, read_settings


class Place(Settings):
    """Devices of a training. null: as in the recipe."""

    devices: int | None = Field(None, ge=1, le=100_000)
    """Number of processes on each node, one per device."""
    nodes: int | None = Field(None, ge=1, le=100_000)
    """Number of machines that train together."""
    accelerator: Accelerator | None = None
    """Kind of device."""


class Card(Settings):
    """The GPU of a machine, for `fgrl plan`: its memory, which a stage must fit into, and the rates from which times
    are computed. A machine file that `extends` a100, b200, h100, h200 or l40s has the numbers of that card and changes
    the numbers that it names.
    """

    name: str
    """Name of the card in the plan."""
    count: int = Field(1, ge=1, le=100_000)
    """Number of cards of the machine: all are paid while one works."""
    memory: float = Field(gt=0)
    """Memory of a card in GiB."""
    tflops: float = Field(gt=0)
    """Dense bfloat16 operations per second, in units of 10^12, from the data sheet."""
    tflops_float32: float = Field(gt=0)
    """Dense float32 operations per second, in units of 10^12."""
    bandwidth: float = Field(gt=0)
    """Gigabytes per second that it reads from its memory."""
    usd: float = Field(ge=0)
    """Price of a card per hour, in USD."""
    reserved: float = Field(2.0, ge=0)
    """Memory that CUDA and NCCL take, in GiB."""
    passing: float = Field(0.4, gt=0, le=1)
    """Share of `tflops` that passes without gradients reach."""
    training: float = Field(0.35, gt=0, le=1)
    """Share of `tflops` that training reaches."""
    stepping: float = Field(0.4, gt=0, le=1)
    """Share of `tflops` that the products of a step of decoding reach."""
    reading: float = Field(0.5, gt=0, le=1)
    """Share of `bandwidth` that decoding reaches."""
    layer: float = Field(0.0009, ge=0)
    """Seconds of a step of decoding with the engine `hf`, for each layer of the model: the time to send its operations
    to the device.
    """
    overlaps: bool = True
    """True if the device computes while the next operations are sent to it. On a CPU it is false: both times add up."""
    served_step: float = Field(0.008, ge=0)
    """Minimum seconds of a step of decoding on a server."""
    disk: float = Field(4.0, gt=0)
    """Gigabytes per second with which checkpoints are written."""


class Slurm(Settings):
    """The job that `fgrl launch --slurm` submits. It has as many nodes, and GPUs on each, as the largest stage needs."""

    partition: str | None = None
    """Partition to which the job is submitted; null: the cluster's default."""
    account: str | None = None
    """Account that pays for the job."""
    time: str | None = Field(None, pattern=r"^\d+(-\d+)?(:\d+){0,2}$")
    """Time limit of the job in SLURM's format ("1-12:00:00"). The job is queued again as often as the recipe needs."""
    signal: int = Field(120, ge=30, le=65_535)
    """Seconds before the end of the job in which the run writes a checkpoint: longer than a round of a training takes."""
    options: list[str] = []
    """More options of `sbatch`, such as `--exclusive`."""
    before: list[str] = []
    """Lines of the shell before the first stage, such as `module load cuda`."""


class StagePlace(Place):
    """Devices of a training and of the engines of its stage."""

    engine: dict[str, Any] = {}
    """Fields of its engines, as in `engine` below."""


class Machines(Settings):
    """Devices on which the stages of a recipe train and draw."""

    train: Place = Place()
    """Devices of every stage that trains. `devices` also applies to stages that share their work out (`sample`,
    `calibrate`, `evaluate`, `annotate`, `grade`, `lm_eval`), unless servers or an endpoint do the work.
    """
    engine: dict[str, Any] = {}
    """Fields for every engine that has them: `devices`, `copies`, `tensor_parallel`, `transfer`, `python`, `servers`,
    `memory` and the other fields of `fgrl show engine vllm` that do not count for keys.
    """
    stages: dict[str, StagePlace] = {}
    """Devices of single stages, by name, instead of `train` and `engine`."""
    slurm: Slurm = Slurm()
    """Job of `fgrl launch --slurm`; `fgrl run` does not read it."""
    card: Card | None = None
    """GPU of the machine, for `fgrl plan`; `fgrl run` does not read it. null: the GPU of this machine, without times."""


def read(file: Path) -> Machines:
    """Return the settings of a machine file. Raises `Problems`."""
    return read_settings(Machines, str(file), Shelf(Path(__file__).with_name("cards"), "a kind of card"))


def placed(file: Path, recipe: Recipe) -> list[str]:
    """Return the overrides of a recipe that a machine file stands for. Raises `Problems`, and `UsageError` for a stage
    that does not train or draw, and for fields that none of its engines has.
    """
    machines = read(file)
    engines = {
        name: [(path, part) for path, part in walk(stage) if isinstance(part, Engine)]
        for name, stage in recipe.stages.items()
    }
    training = [name for name, stage in recipe.stages.items() if "train" in type(stage).model_fields]
    sharing = [name for name, stage in recipe.stages.items() if "devices" in type(stage).model_fields]
    for name, place in machines.stages.items():
        known = training if _trains(place) else [name for name, own in engines.items() if own]
        known = known + sharing if _given(place).keys() == {"devices"} else known
        if name not in known:
            what, where = "trains" if _trains(place) else "draws", f"{file}: stages.{name}"
            raise UsageError(f"{where}: the recipe has no stage of this name that {what}; {alternatives(name, known)}")
    overrides = [
        f"stages.{name}.train.{field}={value}"
        for name in training
        for field, value in (machines.train.model_dump() | _given(machines.stages.get(name))).items()
        if value is not None
    ]
    for name in sharing:
        shares = recipe.stages[name].model_copy(update={"devices": 2}).processes() > 1
        usual = {"devices": machines.train.devices if shares else None}
        devices = (usual | _given(machines.stages.get(name)))["devices"]
        overrides += [] if devices is None else [f"stages.{name}.devices={devices}"]
    _check(machines.engine, [engine for own in engines.values() for _path, engine in own], f"{file}: engine")
    for name, own in engines.items():
        special = machines.stages[name].engine if name in machines.stages else {}
        _check(special, [engine for _path, engine in own], f"{file}: stages.{name}.engine")
        for path, engine in own:
            fields = {key: value for key, value in (machines.engine | special).items() if key in _places(engine)}
            at = ".".join(map(str, ("stages", name, *path)))
            overrides += [f"{at}.{key}={json.dumps(value)}" for key, value in fields.items()]
    return overrides


def _given(place: Place | None) -> dict[str, object]:
    return {} if place is None else place.model_dump(exclude_none=True, exclude={"engine"})


def _trains(place: StagePlace) -> bool:
    return bool(_given(place)) or not place.engine


def _places(engine: Engine) -> list[str]:
    """Return the fields that change no result."""
    return [name for name, field in type(engine).model_fields.items() if marker(field.metadata, Unkeyed) is not None]


def _check(fields: Mapping[str, Any], engines: list[Engine], where: str) -> None:
    """Raise `UsageError` for a field that no engine has, or that changes results."""
    known = dict.fromkeys(place for engine in engines for place in _places(engine))
    for name in fields:
        if name in known:
            continue
        names = ", ".join(dict.fromkeys(name_of(engine)[1] for engine in engines)) or "none"
        if any(name in type(engine).model_fields for engine in engines):
            hint = "it can change results, so it belongs into the recipe"
        elif known:
            hint = alternatives(name, list(known))
        else:
            hint = "name one that has, such as vllm (some recipes have a row FILE::vllm for it), or leave it out"
        raise UsageError(
            f"{where}.{name}: no engine of the recipe has this field for a machine (its engines: {names}); {hint}"
        )
