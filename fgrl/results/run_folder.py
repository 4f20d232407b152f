"""The folder of an invocation as data. What is missing or broken becomes a note on the page, never an exception:
a page about a failed run must not fail too."""

from __future__ import annotations

import glob
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fgrl.errors import DONE, INTERRUPTED
from fgrl.results.reading import finite, mapping, read_json, read_lines
from fgrl.sanitizing import hide, hide_in, remember

LOG_LINES = 30
NOT_METRICS = ("step", "time")
DRAWABLE = 1e30
"""Values beyond this size count as not finite: no axis can show them."""


@dataclass
class Series:
    """One metric of a stage over its steps; only finite values are in it."""

    name: str
    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    broken: list[float] = field(default_factory=list)
    """Steps at which the value was not a finite number."""
    interval: dict[float, tuple[float, float]] = field(default_factory=dict)
    """By step the ends of the interval around the value, where the log has them (`NAME/low` and `NAME/high`)."""


@dataclass
class StageFolder:
    """A stage of this invocation."""

    name: str
    kind: str
    key: str
    state: str
    """"done", "cached", "unfinished" (started, no `stage.json`), "not started" or "not asked for" (in a run that
    finished)."""
    seconds: float | None
    folder: Path | None
    summary: dict[str, Any]
    series: list[Series]

    @property
    def finished(self) -> bool:
        return self.folder is not None and self.state in ("done", "cached")


@dataclass
class RunFolder:
    """An invocation."""

    name: str
    key: str
    about: str
    state: str
    """"finished", "failed", "interrupted" or "unfinished"."""
    exit: int | None
    error: str
    command: str
    started: str
    finished: str
    seconds: float | None
    stages: list[StageFolder]
    recipe: str
    """Text of `recipe.yaml`."""
    settings: dict[str, Any]
    """The recipe as plain data; {} when it cannot be parsed."""
    origins: dict[str, str]
    """Where each value of the recipe comes from."""
    environment: dict[str, Any]
    inputs: dict[str, Any]
    """Data and models that the run read, with their hashes."""
    log: list[str]
    """The last lines of `run.log`."""
    notes: list[str]


EXIT_STATES = {None: "unfinished", DONE: "finished", INTERRUPTED: "interrupted"}
"""Any other exit code: "failed"."""


def load(folder: Path) -> RunFolder:
    """Read `runs/<recipe>/<time>-<key>/`. Secrets that an earlier version wrote there are left out, and hidden from then on."""
    notes: list[str] = []
    recipe = _text(folder / "recipe.yaml", notes)
    settings = _parsed(recipe, notes)
    remember(settings)
    recipe, settings = hide(recipe), hide_in(settings)
    summary = hide_in(read_json(folder / "summary.json", notes, what="the run has not ended, or was killed"))
    kinds = {name: str(mapping(stage).get("name", "")) for name, stage in mapping(settings.get("stages")).items()}
    recorded = mapping(summary.get("stages"))
    names = dict.fromkeys([*kinds, *recorded])
    stages = [_stage(folder, name, mapping(recorded.get(name)), kinds.get(name, ""), notes) for name in names]
    command = summary.get("command", "")
    if summary.get("exit") == 0:
        for stage in stages:
            stage.state = "not asked for" if stage.state == "not started" else stage.state
    code = summary.get("exit")
    code = code if isinstance(code, int) and not isinstance(code, bool) else None
    return RunFolder(
        name=str(summary.get("recipe") or folder.resolve().parent.name),
        key=str(summary.get("key") or folder.resolve().name.rpartition("-")[2]),
        about=str(summary.get("about") or settings.get("about") or ""),
        state=EXIT_STATES.get(code, "failed"),
        exit=code,
        error=str(summary.get("error") or summary.get("message") or ""),
        command=" ".join(map(str, command)) if isinstance(command, list) else str(command),
        started=str(summary.get("started") or ""),
        finished=str(summary.get("finished") or ""),
        seconds=finite(summary.get("seconds")),
        stages=stages,
        recipe=recipe,
        settings=settings,
        origins={name: str(origin) for name, origin in _optional(folder / "origins.json", notes).items()},
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


def _stage(folder: Path, name: str, recorded: dict[str, Any], kind: str, notes: list[str]) -> StageFolder:
    key = str(recorded.get("key") or "")
    place = _place(folder, name, key, recorded.get("dir"))
    if recorded and place is None:
        notes.append(f"{name}: its folder does not exist ({recorded.get('dir') or f'runs/stages/{name}-{key}'}).")
    if recorded.get("cached"):
        state = "cached"
    elif place is not None and (place / "stage.json").exists() and read_json(place / "stage.json", notes):
        state = "done"
    else:
        state = "unfinished" if place is not None else "not started"
    series = [] if place is None else read_series(place, notes, name)
    return StageFolder(
        name=name,
        kind=str(recorded.get("kind") or kind),
        key=key,
        state=state,
        seconds=finite(recorded.get("seconds")),
        folder=place,
        summary=mapping(recorded.get("summary")),
        series=series,
    )


def read_series(place: Path, notes: list[str], name: str) -> list[Series]:
    """Every metric in the log of a stage's folder; nothing where it has no log. What cannot be read is noted."""
    log = place / "log.jsonl"
    return _curves(read_lines(log, notes, name)) if log.exists() else []


def _curves(lines: Iterator[dict[str, Any]]) -> list[Series]:
    """Every metric of a log, in the order of first appearance. A line without a step counts as the next step.
    `null` is how a log writes a number that is not finite."""
    by_name: dict[str, Series] = {}
    last = -1.0
    for line in lines:
        step = finite(line.get("step"))
        last = last + 1 if step is None else step
        for name, value in line.items():
            if name in NOT_METRICS or isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            series = by_name.setdefault(str(name), Series(str(name)))
            number = finite(value)
            if number is None or abs(number) > DRAWABLE:
                series.broken.append(last)
            else:
                series.steps.append(last)
                series.values.append(number)
    return _with_intervals(by_name)


def _with_intervals(by_name: Mapping[str, Series]) -> list[Series]:
    """The metrics; what the log has as their intervals is put into them."""
    ends: set[str] = set()
    for name, series in by_name.items():
        low, high = (by_name.get(f"{name}/{end}") for end in ("low", "high"))
        if low is not None and high is not None:
            upper = dict(zip(high.steps, high.values, strict=True))
            pairs = zip(low.steps, low.values, strict=True)
            series.interval = {step: (value, upper[step]) for step, value in pairs if step in upper}
            ends |= {low.name, high.name}
    return [series for name, series in by_name.items() if name not in ends]


def _place(folder: Path, name: str, key: str, recorded: Any) -> Path | None:
    """Where a stage's folder is: as the summary records it, or by the layout of `runs/`."""
    runs = folder.resolve().parent.parent
    tries = [runs / "stages" / f"{name}-{key}", *sorted((runs / "stages").glob(f"*-{glob.escape(key)}"))] if key else []
    if isinstance(recorded, str) and recorded and "\0" not in recorded:
        tries = [folder / recorded, runs / recorded, runs.parent / recorded, *tries]
    return next((path for path in tries if path.is_dir()), None)
