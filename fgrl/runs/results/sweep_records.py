"""The record of a sweep, and the only code that writes and reads its file.

runs/sweeps/<name>-<eight digits>/sweep.json    `SweepRecord`, written again after every point
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, ValidationError

from fgrl.base.errors import DataError
from fgrl.base.files import write_json
from fgrl.base.sanitizing import hide_in
from fgrl.measuring.number_names import of_model
from fgrl.measuring.statistics import Estimate
from fgrl.runs.reading import mapping
from fgrl.runs.results.evaluated import evaluations_of
from fgrl.runs.results.evaluations import read_evaluation
from fgrl.runs.results.trainings import Trainings
from fgrl.runs.run import Run
from fgrl.types import Record

SWEEPS = "sweeps"
"""Folder of the sweeps in a folder of runs."""
SWEEP = "sweep.json"
INDEX = "index.html"
Goal = Literal["minimize", "maximize"]
State = Literal["waiting", "unfinished", "finished", "failed", "stopped early"]


class PointRecord(Record):
    """One point of a sweep."""

    number: int
    """Number of the point, from 1, in the order of the sweep."""
    parameters: dict[str, Any]
    """Value of each parameter."""
    shares: dict[str, float] = {}
    """Position of each drawn value in its distribution, from 0 to 1; for categories, their index in the list."""
    keys: dict[str, str] = {}
    """Keys of its stages, by name."""
    state: State = "waiting"
    exit: int | None = None
    """Exit code; None if it has not run, or was killed."""
    error: str = ""
    run: str = ""
    """Folder of its run, relative to the folder of runs."""
    seconds: float | None = None
    """Seconds of all its stages, including shared ones; for a point that did not finish, the seconds of its last
    process.
    """
    value: Estimate | None = None
    """Number by which points are compared; None if it is not (yet) known."""
    numbers: dict[str, Estimate] = {}
    """Numbers of its evaluations and of its stages' reports, by `STAGE/NUMBER`."""
    reported: list[tuple[int, float]] = []
    """Pairs (number of values, value) of the number during training, as far as early stopping read them."""


class Lead(Record):
    """The best setting and the one after it."""

    best: list[int]
    """Numbers of its points: several if they differ only in their seeds."""
    second: list[int] = []
    difference: Estimate | None = None
    """Best minus second on the same prompts, paired; None if they cannot be paired."""
    over_seeds: Estimate | None = None
    """Best minus second over the seeds that both have; None if there is only one seed."""
    note: str = ""
    """Reason for a missing interval."""


class SweepRecord(Record):
    """Record of a sweep, up to its present state."""

    model_config = ConfigDict(extra="ignore")

    id: str
    """Name of its folder, and its group at W&B."""
    name: str
    file: str = ""
    """The sweep file; empty for a grid of `fgrl run`."""
    about: str = ""
    recipe: str
    """Address of the recipe."""
    command: list[str] = []
    method: str
    metric: str = ""
    """Name of the number by which points are compared; empty if it is not yet known."""
    goal: Goal = "maximize"
    of_reward: bool = False
    """True if the number is the reward that was trained on, because nothing else was measured."""
    varied: list[str] = []
    """Parameters with more than one value."""
    threads: int
    """Number of threads of each point."""
    seed: int = 0
    """Seed of the draws."""
    started: str
    finished: str | None = None
    exit: int | None = None
    """Exit code; None if it has not ended, or was killed."""
    points: list[PointRecord] = []
    lead: Lead | None = None

    @property
    def failed(self) -> list[PointRecord]:
        return [point for point in self.points if point.state == "failed"]

    @property
    def ranked(self) -> list[PointRecord]:
        """Return the finished points that have the number, the best first."""
        known = [point for point in self.points if point.state == "finished" and _mean(point) is not None]
        return sorted(known, key=lambda point: _mean(point) or 0.0, reverse=self.goal == "maximize")

    def settings(self) -> list[list[PointRecord]]:
        """Return the ranked points in groups that differ only in their seeds, sorted by the mean of each group, the
        best first.
        """
        groups: dict[str, list[PointRecord]] = {}
        for point in self.ranked:
            rest = {name: value for name, value in point.parameters.items() if name != "seed"}
            groups.setdefault(json.dumps(rest, sort_keys=True), []).append(point)
        most = max(map(len, groups.values()), default=0)
        whole = [group for group in groups.values() if len(group) == most]  # others wait for their seeds
        return sorted(whole, key=mean_of, reverse=self.goal == "maximize")


def mean_of(points: Sequence[PointRecord]) -> float:
    """Return the mean of the points' numbers."""
    values = [value for point in points if (value := _mean(point)) is not None]
    return sum(values) / len(values)


def _mean(point: PointRecord) -> float | None:
    return None if point.value is None else point.value.mean


def write_sweep(folder: Path, record: SweepRecord) -> None:
    """Write the record of a sweep, without secrets."""
    write_json(folder / SWEEP, hide_in(record.model_dump(mode="json")))


def read_sweep_record(folder: Path) -> SweepRecord | None:
    """Return the record of a sweep, without secrets; None if there is none. Raises `DataError` for a broken record."""
    file = folder / SWEEP
    try:
        return SweepRecord.model_validate(hide_in(json.loads(file.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError) as error:
        raise DataError(
            f"{file} cannot be read ({str(error).splitlines()[0]}): move it away; finished stages are found without it"
        ) from None


def sweep_records(runs: Path) -> Iterator[tuple[Path, SweepRecord]]:
    """Yield the sweeps in a folder of runs with their folders; sweeps that cannot be read are left out."""
    for folder in sorted((runs / SWEEPS).glob("*")):
        try:
            record = read_sweep_record(folder)
        except DataError:
            continue
        if record is not None:
            yield folder, record


def in_words(parameters: Mapping[str, Any]) -> str:
    """Return the parameters of a point on one line: `kl_coef=0.1 seed=2`."""
    return " ".join(f"{name}={as_word(value)}" for name, value in short_names(parameters).items())


def short_names(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters by the last part of each path, or by the whole path if two end with the same part."""
    last = {name: name.rpartition(".")[2] for name in parameters}
    doubled = {short for short in last.values() if list(last.values()).count(short) > 1}
    return {name if last[name] in doubled else last[name]: value for name, value in parameters.items()}


def as_word(value: Any) -> str:
    """Return a value in the form of an override, without the quotes of a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- numbers of a point ------------------------------------------------------------------------------------------------


def numbers_of(run: Run) -> dict[str, Estimate]:
    """Return the numbers that the stages of a run reported at their ends, with intervals if evaluations have them."""
    numbers: dict[str, Estimate] = {}
    for stage in run.stages.values():
        if not stage.finished:
            continue
        for name, value in _leaves({**stage.summary, "measured": None}, stage.name):
            numbers[name] = Estimate(mean=value)
        if stage.measured:
            evaluation = read_evaluation(stage.out, [])
            for measure in evaluation.measures:
                for number in measure.models:
                    name = of_model(measure.name, number.model, evaluation.models, evaluation.baseline)
                    numbers[f"{stage.name}/{name}"] = Estimate(
                        **{key: getattr(number.value, key) for key in Estimate.model_fields}
                    )
    return numbers


def number_of(run: Run, metric: str, numbers: dict[str, Estimate]) -> Estimate | None:
    """Return the number `STAGE/NUMBER` of a run: from the stage's report, else the last logged value."""
    if metric in numbers:
        return numbers[metric]
    name, _, logged = metric.partition("/")
    stage = run.stages.get(name)
    series = None if stage is None else stage.logged.get(logged)
    if series is None or not series.values:
        return None
    low, high = series.interval.get(series.steps[-1], (None, None))
    return Estimate(mean=series.values[-1], low=low, high=high)


class MainNumber(NamedTuple):
    """Number by which the points of a sweep are compared if its file names none."""

    name: str
    goal: Goal
    of_reward: bool
    """True if it is the reward that was trained on."""


def main_number(run: Run) -> MainNumber | None:
    """Return the first number with a goal in a run's last evaluation that has one; if no evaluation has one, the first
    reward.
    """
    trainings, measuring = Trainings(run), [stage for stage in run.stages.values() if stage.measured]
    every = [each for stage in reversed(measuring) for each in evaluations_of(stage, trainings)]
    for purpose in ("goal", "reward"):
        own = next((own for each in every for own in each.moved if own.purpose == purpose and own.better), None)
        if own is not None:
            name = of_model(own.name, own.model.name, own.of.evaluation.models, own.of.evaluation.baseline)
            goal: Goal = "maximize" if own.better == "higher" else "minimize"
            return MainNumber(f"{own.of.stage.name}/{name}", goal, purpose == "reward")
    return None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, float]]:
    for name, item in mapping(value).items():
        if isinstance(item, dict):
            yield from _leaves(item, f"{path}/{name}")
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield f"{path}/{name}", float(item)
