"""The folder of an invocation as data. What is missing or broken becomes a note on the page, never an exception:
a page about a failed run must not fail too.
"""

from __future__ import annotations

import glob
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fgrl.results.reading import mapping, read_json
from fgrl.results.records import Broken, RunRecord, Unfinished, UsedStage, parse_stage, read_alarms, read_run
from fgrl.results.series import Series, read_series
from fgrl.sanitizing import hide, hide_in, remember
from fgrl.types import AlarmRecord

LOG_LINES = 30


@dataclass
class RunStage:
    """A stage of an invocation."""

    name: str
    component: str
    """Name of the stage's component: "finetune", "rl", ..."""
    key: str
    seconds: float | None
    summary: dict[str, Any]
    """Report of the stage at its end."""
    state: str
    """"done", "cached", "unfinished" (started, without a record), "not started" or "not asked for" (in a run that
    finished)."""
    folder: Path | None
    """`runs/stages/<stage>-<key>`; None where the stage has none."""
    series: list[Series] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)
    """As the recipe has them; {} where it cannot be parsed."""
    alarms: list[AlarmRecord] | None = None
    """Alarms of a training; None: nothing watched."""

    @property
    def finished(self) -> bool:
        return self.folder is not None and self.state in ("done", "cached")

    @property
    def logged(self) -> dict[str, Series]:
        """By the metric's name."""
        return {series.name: series for series in self.series}


@dataclass
class RunFolder:
    """An invocation."""

    record: RunRecord
    stages: list[RunStage]
    recipe: str
    """Text of `recipe.yaml`."""
    settings: dict[str, Any]
    """The recipe as plain data; {} when it cannot be parsed."""
    origins: dict[str, Any]
    """Origin of each value of the recipe."""
    environment: dict[str, Any]
    inputs: dict[str, Any]
    """Data and models that the run read, with their hashes."""
    log: list[str]
    """The last lines of `run.log`."""
    notes: list[str]


def load(folder: Path) -> RunFolder:
    """Read `runs/<recipe>/<time>-<key>/`. Secrets that an earlier version wrote there are left out, and hidden from
    then on.
    """
    notes: list[str] = []
    recipe = _text(folder / "recipe.yaml", notes)
    settings = _parsed(recipe, notes)
    remember(settings)
    recipe, settings = hide(recipe), hide_in(settings)
    record = read_run(folder, notes)
    place = folder.resolve()
    record.recipe = record.recipe or place.parent.name
    record.key = record.key or place.name.rpartition("-")[2]
    record.about = record.about or str(settings.get("about") or "")
    written = mapping(settings.get("stages"))
    stages = [
        _stage(folder, name, record, mapping(written.get(name)), notes)
        for name in dict.fromkeys([*written, *record.stages])
    ]
    return RunFolder(
        record=record,
        stages=stages,
        recipe=recipe,
        settings=settings,
        origins=_optional(folder / "origins.json", notes),
        environment=hide_in(read_json(folder / "environment.json", notes)),
        inputs=_optional(folder / "inputs.json", notes),
        log=[hide(line) for line in _tail(folder / "run.log")],
        notes=notes,
    )


def _text(path: Path, notes: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        notes.append(f"{path.name} cannot be read ({error.strerror}).")
        return ""


def _optional(path: Path, notes: list[str]) -> dict[str, Any]:
    return read_json(path, notes) if path.exists() else {}


def _tail(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=LOG_LINES)]


def _parsed(recipe: str, notes: list[str]) -> dict[str, Any]:
    try:
        return mapping(yaml.safe_load(recipe))
    except (yaml.YAMLError, RecursionError) as error:
        notes.append(f"recipe.yaml could not be parsed ({type(error).__name__}); it is shown as it is.")
        return {}


def _stage(folder: Path, name: str, run: RunRecord, settings: dict[str, Any], notes: list[str]) -> RunStage:
    used = run.stages.get(name, UsedStage())
    place = _place(folder, name, used)
    if name in run.stages and place is None:
        notes.append(f"{name}: its folder does not exist ({used.dir or f'runs/stages/{name}-{used.key}'}).")
    if used.cached:
        state = "cached"
    elif place is None:
        state = "not asked for" if run.state == "finished" else "not started"
    else:
        state = _state_of(place, notes)
    series = [] if place is None else read_series(place, notes, name)
    component = used.kind or str(settings.get("name", ""))
    alarms = None if place is None else read_alarms(place)
    return RunStage(name, component, used.key, used.seconds, used.summary, state, place, series, settings, alarms)


def _state_of(place: Path, notes: list[str]) -> str:
    try:
        parse_stage(place)
    except Unfinished:
        return "unfinished"
    except Broken as broken:
        notes.append(f"{broken}.")
        return "unfinished"
    return "done"


def _place(folder: Path, name: str, used: UsedStage) -> Path | None:
    """Return a stage's folder: as the record says, or by the layout of `runs/`."""
    stages = folder.resolve().parent.parent / "stages"
    tries = [folder / used.dir] if used.dir and "\0" not in used.dir else []
    if used.key:
        tries += [stages / f"{name}-{used.key}", *sorted(stages.glob(f"*-{glob.escape(used.key)}"))]
    return next((path.resolve() for path in tries if path.is_dir()), None)
