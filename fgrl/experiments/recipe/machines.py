"""Machine files: where the stages of a recipe train, and where their engines draw. They change neither results nor keys."""

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
    """Devices of a training. Null: as the recipe says."""

    devices: int | None = Field(None, ge=1, le=100_000)
    """Processes on each node, one per device."""
    nodes: int | None = Field(None, ge=1, le=100_000)
    """Machines that train together."""
    accelerator: Accelerator | None = None
    """Kind of device."""


class Card(Settings):
    """The GPU of a machine, for `fgrl plan`: what a stage fits into, and the rates by which its time is computed. A machine file that
    `extends` a100, b200, h100, h200 or l40s has the numbers of that card and changes those that it names.
    """

    name: str
    """What the plan calls it."""
    count: int = Field(1, ge=1, le=100_000)
    """Cards of the machine: all are paid while one works."""
    memory: float = Field(gt=0)
    """GiB."""
    tflops: float = Field(gt=0)
    """Dense bfloat16 operations in 10^12 a second, as the data sheet says."""
    tflops_float32: float = Field(gt=0)
    """The same in float32."""
    bandwidth: float = Field(gt=0)
    """Gigabytes a second that it reads from its memory."""
    usd: float = Field(ge=0)
    """Price of a card for an hour."""
    reserved: float = Field(2.0, ge=0)
    """GiB that CUDA and NCCL take."""
    passing: float = Field(0.4, gt=0, le=1)
    """Share of `tflops` that passes without gradients reach."""
    training: float = Field(0.35, gt=0, le=1)
    """Share of `tflops` that training reaches."""
    stepping: float = Field(0.4, gt=0, le=1)
    """Share of `tflops` that the products of a step of decoding reach."""
    reading: float = Field(0.5, gt=0, le=1)
    """Share of `bandwidth` that decoding reaches."""
    layer: float = Field(0.0009, ge=0)
    """Seconds of a step of decoding with the engine `hf`, for each layer of the model: what it takes to send its operations to the device."""
    overlaps: bool = True
    """True if the device computes while the next operations are sent to it. A CPU does not: there both times add up."""
    served_step: float = Field(0.008, ge=0)
    """Seconds that a step of decoding takes at least on a server."""
    disk: float = Field(4.0, gt=0)
    """Gigabytes a second that checkpoints are written with."""


class Slurm(Settings):
    """The job that `fgrl launch --slurm` submits. It has as many nodes, and GPUs on each, as the largest stage needs."""

    partition: str | None = None
    """Where it is queued; null: where the cluster puts jobs."""
    account: str | None = None
    """Who pays for it."""
    time: str | None = Field(None, pattern=r"^\d+(-\d+)?(:\d+){0,2}$")
    """The most that it takes, as SLURM writes it ("1-12:00:00"). The job is queued again as often as the recipe needs."""
    signal: int = Field(120, ge=30, le=65_535)
    """Seconds before its end in which the run writes a checkpoint: longer than a round of a training takes."""
    options: list[str] = []
    """More options of `sbatch`, such as `--exclusive`."""
    before: list[str] = []
    """Lines of the shell before the first stage, such as `module load cuda`."""


class StagePlace(Place):
    """Devices of a training and of the engines of its stage."""

    engine: dict[str, Any] = {}
    """Fields of its engines, as in `engine` below."""


class Machines(Settings):
    """Where the stages of a recipe train and draw."""

    train: Place = Place()
    """For every stage that trains; `devices` also for those that share their work out (`sample`, `calibrate`, `evaluate`, `annotate`,
    `grade`, `lm_eval`), but where servers or an endpoint do the work."""
    engine: dict[str, Any] = {}
    """For every engine that has these fields: `devices`, `copies`, `tensor_parallel`, `transfer`, `python`, `servers`, `memory`
    and the others of `fgrl show engine vllm` that count for no key.
    """
    stages: dict[str, StagePlace] = {}
    """For single stages, by name, instead of `train` and `engine`."""
    slurm: Slurm = Slurm()
    """The job of `fgrl launch --slurm`; `fgrl run` does not read it."""
    card: Card | None = None
    """The GPU, for `fgrl plan`; `fgrl run` does not read it. null: that of this machine, without times."""


def read(file: Path) -> Machines:
    """Return the settings of a machine file. Raises `Problems`."""
    return read_settings(Machines, str(file), Shelf(Path(__file__).with_name("cards"), "a kind of card"))


def placed(file: Path, recipe: Recipe) -> list[str]:
    """Return the overrides of a recipe that a machine file stands for. Raises `Problems`, and `UsageError` for a stage that
    does not train or draw, and for fields that none of its engines has.
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
