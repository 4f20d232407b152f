"""Which stages a recipe needs, which of them are already done, and why not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl import registry
from fgrl.data.rubrics.rubric_set import RubricSet
from fgrl.errors import DataError, NotYet
from fgrl.kinds import Expected, Stage
from fgrl.pipeline import keys
from fgrl.pipeline.folders import Runs, is_done, recipe_name
from fgrl.registry.problems import dotted
from fgrl.types import Ref

if TYPE_CHECKING:
    from fgrl.recipe import Recipe

SHOWN = 3
"""Changes that a reason names before it only counts."""


@dataclass
class Planned:
    """One stage of a plan."""

    name: str
    stage: Stage
    component: str
    """Name of the stage's component: "finetune", "rl", ..."""
    key: str
    identity: keys.Identity
    upstream: dict[str, str]
    """Names and keys of the stages it refers to."""
    dir: Path
    cached: bool
    why: str

    @property
    def makes(self) -> str:
        return type(self.stage).makes.__name__

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "cached": self.cached,
            "why": self.why,
            "component": self.component,
            "makes": self.makes,
            "upstream": list(self.upstream),
            "dir": str(self.dir),
        }


@dataclass
class Plan:
    """The stages of a recipe in order of execution."""

    recipe: Recipe
    runs: Runs
    stages: list[Planned] = field(default_factory=list)

    @property
    def name(self) -> str:
        return recipe_name(self.recipe.address)

    @property
    def short(self) -> str:
        """Eight digits that stand for all keys."""
        return hashlib.sha256(" ".join(sorted(stage.key for stage in self.stages)).encode()).hexdigest()[:8]

    def __getitem__(self, name: str) -> Planned:
        return next(stage for stage in self.stages if stage.name == name)

    def as_json(self) -> dict[str, Any]:
        """`{"stages": {name: {"key", "cached", "why", ...}}}` in order of execution."""
        return {
            "recipe": self.name,
            "seed": self.recipe.seed,
            "stages": {stage.name: stage.as_json() for stage in self.stages},
        }


@dataclass
class Peek:
    """What a stage may look at while it is planned; see `fgrl.kinds.Peek`."""

    cache: Path
    limit: int | None
    finished: Mapping[str, Path]
    """Product folders of the upstream stages that are done."""
    seed: int = 0
    stages: Mapping[str, Stage] = field(default_factory=dict)
    """All stages of the recipe."""

    def path(self, ref: Ref[Any]) -> Path:
        if ref.stage not in self.finished:
            raise NotYet(ref.stage)
        return self.finished[ref.stage]

    def stage(self, ref: Ref[Any]) -> Stage:
        if ref.stage not in self.stages:
            raise NotYet(ref.stage)
        return self.stages[ref.stage]

    def expects(self, ref: Ref[Any]) -> Expected | None:
        return self.stages[ref.stage].expects(self) if ref.stage in self.stages else None

    def say(self, text: str) -> None:
        """Nobody listens to a plan."""


def estimates(made: Plan, limit: int | None = None) -> dict[str, dict[str, Any]]:
    """What each stage that is to run will take, by its name: see `Stage.estimate`.

    `{"after": stage}` stands for what cannot be known before that stage has run.
    """
    found: dict[str, dict[str, Any]] = {}
    stages = {planned.name: planned.stage for planned in made.stages}
    for planned in made.stages:
        if planned.cached:
            continue
        upstream = {stage.name: stage.dir / "out" for stage in made.stages if stage.cached}
        peek = Peek(made.runs.cache, limit, upstream, made.recipe.seed, stages)
        try:
            told = planned.stage.estimate(peek)
        except NotYet as stage:
            told = {"after": str(stage)}
        told = {**told, **criteria(planned.stage, peek)}
        if told:
            found[planned.name] = told
    return found


def criteria(stage: Stage, peek: Peek | None = None) -> dict[str, Any]:
    """How many criteria of which kind the prompts of a stage have, by the path of their reader: {} where it has none.

    peek: read what lies on this machine; without it only what was read already is told.
    """
    found: dict[str, Any] = {}
    for path, reader in registry.walk(stage):
        if not isinstance(reader, RubricSet):
            continue
        try:
            if peek is not None:
                reader.expects(peek)
        except DataError as problem:
            found[dotted(path)] = {"unknown": str(problem).split("\n")[0]}
            continue
        if counts := reader.counts():
            found[dotted(path)] = counts
    return {"criteria": found} if found else {}


def plan(recipe: Recipe, runs: Path, *, limit: int | None = None) -> Plan:
    """Keys of all stages, and what `runs` already has. Nothing is run or written."""
    made = Plan(recipe, Runs(Path(runs)))
    finished = list(made.runs.finished())
    graph = recipe.graph()
    known: dict[str, str] = {}
    for name, stage in recipe.stages.items():
        upstream = {other: known[other] for other in graph[name]}
        whole = keys.identity(stage, seed=recipe.seed, upstream=upstream, sources=recipe.sources, limit=limit)
        known[name] = key = keys.key(whole)
        folder = made.runs.find(key)
        done = folder is not None and is_done(folder)
        component = registry.name_of(stage)[1]
        made.stages.append(
            Planned(
                name=name,
                stage=stage,
                component=component,
                key=key,
                identity=whole,
                upstream=upstream,
                dir=folder or made.runs.stages / f"{name}-{key}",
                cached=done,
                why=_cached(key, finished)
                if done
                else _unfinished(folder)
                or _changed(name, component, whole, {key: other for other, key in upstream.items()}, finished),
            )
        )
    return made


def _cached(key: str, finished: Iterable[Mapping[str, Any]]) -> str:
    made = next(stage for stage in finished if stage["key"] == key)
    return f"cached (made by {made['recipe']} on {made['made'][:10]})"


def _unfinished(folder: Path | None) -> str | None:
    return None if folder is None else "started, not finished: goes on from where it was"


def _changed(
    name: str, component: str, whole: keys.Identity, upstream: Mapping[str, str], finished: list[dict[str, Any]]
) -> str:
    """Against the finished stage of the same component with the fewest differences; of equals, one of the same name."""
    candidates = [stage for stage in finished if stage["component"] == component]
    if not candidates:
        return "new"
    mine = dict(keys.leaves(whole))

    def differences(other: Mapping[str, Any]) -> list[str]:
        theirs = dict(keys.leaves(other["identity"]))
        return [path for path in {**mine, **theirs} if mine.get(path, _MISSING) != theirs.get(path, _MISSING)]

    closest = min(candidates, key=lambda other: (len(differences(other)), other["name"] != name))
    changed = differences(closest)
    theirs = dict(keys.leaves(closest["identity"]))
    if len(changed) > max(SHOWN, len(mine) // 2):
        return "new"
    return _tell(name, changed, mine, theirs, upstream, closest["folder"].name)


def _tell(
    name: str,
    changed: list[str],
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    upstream: Mapping[str, str],
    closest: str,
) -> str:
    said: dict[str, None] = {}  # in order, each once
    values: list[str] = []
    for path in changed:
        now, before = mine.get(path, _MISSING), theirs.get(path, _MISSING)
        part, _, inside = path.partition(".")
        what = f"stages.{name}.{inside}" if part in ("settings", "data") else path
        kind = keys.place(now)
        if kind == "product" and keys.place(before) == "product":
            said[f"upstream {upstream[now['product']]} changed"] = None
        elif kind in ("sha256", "weights") and keys.place(before) == kind:
            said[f"{'contents' if kind == 'sha256' else 'weights'} of {what} changed"] = None
        elif path.startswith("sources"):
            said["source of imported files changed"] = None
        else:
            values.append(f"{what} ({_text(before)} -> {_text(now)})")
    if values:
        more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        said[f"changed: {', '.join(values[:SHOWN])}{more} against {closest}"] = None
    return "; ".join(said)


_MISSING = object()


def _text(value: Any) -> str:
    if value is _MISSING:
        return "absent"
    if kind := keys.place(value):
        return f"{kind} {str(value[kind])[:16]}"
    return "null" if value is None else str(value)
