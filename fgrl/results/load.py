"""The folder of an invocation as data. What is missing or broken becomes a note on the page, never an exception:
a page about a failed run must not fail too."""

from __future__ import annotations

import glob
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fgrl.results.reading import finite, read_json, read_lines

BESIDE_METRICS = ("step", "time")
DRAWABLE = 1e30
"""Values beyond this size count as not finite: no axis can show them."""
LOG_LINES = 30


@dataclass
class Series:
    """One metric of a stage over its steps; only finite values are in it."""

    name: str
    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    broken: list[float] = field(default_factory=list)
    """Steps at which the value was not a finite number."""


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
    origins: dict[str, str]
    """Where each value of the recipe comes from."""
    environment: dict[str, Any]
    inputs: dict[str, Any]
    """Data and models that the run read, with their hashes."""
    log: list[str]
    """The last lines of `run.log`."""
    notes: list[str]


def load(folder: Path) -> RunFolder:
    """Read `runs/<recipe>/<time>-<key>/`."""
    notes: list[str] = []
    summary = read_json(folder / "summary.json", notes, what="the run has not ended, or was killed")
    recipe = _text(folder / "recipe.yaml", notes)
    written = _stages_of(recipe, notes)
    told = _dict(summary.get("stages"))
    names = [*(name for name in written if name not in told), *told]
    names.sort(key=lambda name: list(written).index(name) if name in written else len(written))
    if told and set(names) == set(told):
        names = list(told)  # the summary has the order of execution
    stages = [_stage(folder, name, _dict(told.get(name)), written.get(name, ""), notes) for name in names]
    command = summary.get("command", "")
    if summary.get("exit") == 0:
        for stage in stages:
            stage.state = "not asked for" if stage.state == "not started" else stage.state
    code = summary.get("exit")
    code = code if isinstance(code, int) and not isinstance(code, bool) else None
    state = {None: "unfinished", 0: "finished", 130: "interrupted"}.get(code, "failed")
    return RunFolder(
        name=str(summary.get("recipe") or folder.resolve().parent.name),
        key=str(summary.get("key") or folder.resolve().name.rpartition("-")[2]),
        about=str(summary.get("about") or _about(recipe)),
        state=state,
        exit=code,
        error=str(summary.get("error") or summary.get("message") or ""),
        command=" ".join(map(str, command)) if isinstance(command, list) else str(command),
        started=str(summary.get("started") or ""),
        finished=str(summary.get("finished") or ""),
        seconds=finite(summary.get("seconds")),
        stages=stages,
        recipe=recipe,
        origins={name: str(origin) for name, origin in _optional(folder / "origins.json", notes).items()},
        environment=read_json(folder / "environment.json", notes),
        inputs=_optional(folder / "inputs.json", notes),
        log=_tail(folder / "run.log"),
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


def _recipe(text: str) -> dict[Any, Any]:
    data = OmegaConf.to_container(OmegaConf.create(text)) if text.strip() else {}
    return data if isinstance(data, dict) else {}


def _stages_of(text: str, notes: list[str]) -> dict[str, str]:
    """Names of the stages that the recipe has, and their kinds."""
    try:
        stages = _dict(_recipe(text).get("stages"))
    except Exception as error:  # OmegaConf and YAML have no common base class
        notes.append(f"recipe.yaml could not be understood ({type(error).__name__}); it is shown as it is.")
        return {}
    return {str(key): str(value.get("name", "")) if isinstance(value, dict) else "" for key, value in stages.items()}


def _about(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("about:"):
            return line.removeprefix("about:").partition("  #")[0].strip().strip("'\"")
    return ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _stage(folder: Path, name: str, told: dict[str, Any], kind: str, notes: list[str]) -> StageFolder:
    key = str(told.get("key") or "")
    place = _place(folder, name, key, told.get("dir"))
    if told and place is None:
        notes.append(f"{name}: its folder is not there ({told.get('dir') or f'runs/stages/{name}-{key}'}).")
    if told.get("cached"):
        state = "cached"
    elif place is not None and (place / "stage.json").exists():
        state = "done"
    else:
        state = "unfinished" if place is not None else "not started"
    series = []
    if place is not None and (place / "log.jsonl").exists():
        series = curves(read_lines(place / "log.jsonl", notes, name))
    return StageFolder(
        name=name,
        kind=str(told.get("kind") or kind),
        key=key,
        state=state,
        seconds=finite(told.get("seconds")),
        folder=place,
        summary=_dict(told.get("summary")),
        series=series,
    )


def _place(folder: Path, name: str, key: str, told: Any) -> Path | None:
    """Where a stage lives: as the summary says it, or by the layout of `runs/`."""
    runs = folder.resolve().parent.parent
    tries = [runs / "stages" / f"{name}-{key}", *sorted((runs / "stages").glob(f"*-{glob.escape(key)}"))] if key else []
    if isinstance(told, str) and told and "\0" not in told:
        tries = [folder / told, runs / told, runs.parent / told, *tries]
    return next((path for path in tries if path.is_dir()), None)


def curves(lines: Iterator[dict[str, Any]]) -> list[Series]:
    """Every metric of a log, in the order of first appearance. A line without a step counts as the next step.
    `null` is how a log writes a number that is not finite."""
    found: dict[str, Series] = {}
    last = -1.0
    for line in lines:
        step = finite(line.get("step"))
        last = last + 1 if step is None else step
        for name, value in line.items():
            if name in BESIDE_METRICS or isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            series = found.setdefault(str(name), Series(str(name)))
            number = finite(value)
            if number is None or abs(number) > DRAWABLE:
                series.broken.append(last)
            else:
                series.steps.append(last)
                series.values.append(number)
    return list(found.values())
