"""The finished part of a recipe that is named with its settings.

Nothing is planned: the resolved settings are compared with the resolved recipe that each run keeps, and a stage counts
if its settings and those of all stages before it are equal. The earlier content of its files is unknown without reading
them: remarks tell which of them have changed since.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import yaml

from fgrl import kinds, registry
from fgrl.base.files import digest_of_file
from fgrl.experiments.recipe import loading
from fgrl.experiments.recipe.files import recipe_name
from fgrl.experiments.recipe.loading import Recipe
from fgrl.registry import outside
from fgrl.runs.folders import TIME, Runs
from fgrl.runs.reading import mapping
from fgrl.runs.results.differing import leaves
from fgrl.runs.run import Run
from fgrl.runs.stage import LOADER, RECIPE, Stage
from fgrl.types import Report

RUNS = Path("runs")
"""Default folder of `fgrl run`."""
MOST_OTHERS = 3
"""Maximum number of runs with other settings that are named."""


class NamedRecipe(Run):
    """A recipe with overrides and its finished stages, which belong to the newest runs with these settings."""

    def __init__(self, recipe: Recipe, overrides: Sequence[str], runs: Runs, limit: int | None = None) -> None:
        """limit: the limit of a trial; without one, trials do not count."""
        super().__init__(runs.root / recipe_name(recipe.address))
        self.recipe, self.overrides, self.limit, self._runs = recipe, list(overrides), limit, runs
        where = [] if runs.root == RUNS else ["--runs", str(runs.root)]
        self.address = recipe.address
        self.command = shlex.join(["fgrl", "run", recipe.address, *overrides, *where])

    @property
    def name(self) -> str:
        return recipe_name(self.address)

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @property
    def runs(self) -> Runs:
        return self._runs

    @cached_property
    def written(self) -> dict[str, Any]:
        """Return the recipe as a run stores it."""
        return mapping(yaml.load(self.recipe.to_yaml(), LOADER))

    @cached_property
    def stages(self) -> dict[str, Stage]:
        found: dict[str, Stage] = {}
        for run in self._candidates():
            for name in self._equal_in(run):
                if name not in found and self._counts(stage := run.stages[name], run, found):
                    found[name] = stage
            if len(found) == len(self.recipe.stages):
                break
        written = mapping(self.settings.get("stages"))
        return {
            name: found.get(name) or Stage(None, name, in_run="not started", written=mapping(written.get(name)))
            for name in self.recipe.stages
        }

    @cached_property
    def own_runs(self) -> list[Run]:
        """Return the recipe's runs with any settings, the newest first."""
        return [Run(folder, quick=True) for folder in self.runs.invocations(self.name)]

    def newest_run(self) -> Run | None:
        """Return the newest run with these settings, finished or not."""
        for run in self.own_runs:
            equal = self._equal_in(run)
            if len(equal) == len(run.stages) == len(self.recipe.stages) and not any(
                map(self._is_trial, run.stages.values())
            ):
                return run
        return None

    def remarks(self) -> Iterator[str]:
        """Yield what has changed since its stages were made."""
        changed: dict[str, None] = {}
        dates = []
        for stage in self.finished.values():
            if names := list(self._changed(stage)):
                changed |= dict.fromkeys(names)
                dates.append(stage.record.made[:10])
        if changed:
            listed = ", ".join(changed)
            yield f"{self.name}: files have changed since {min(dates)} ({listed}): what is shown was made before"
        text, done = self.recipe.to_yaml(), {name: stage.found for name, stage in self.finished.items()}
        for run in self.own_runs if done else ():
            for name, key in run.keys.items() if run.written_text == text else ():
                newest = done.get(name)
                if (
                    newest is None
                    or key == newest.key
                    or not (other := run.stages[name]).finished
                    or self._is_trial(other)
                ):
                    continue
                shown = f"the newest is shown, of {newest.made[:10]}"
                yield f"{self.name}: runs with these settings have read different files: {shown}"
                return

    def other_settings(self) -> list[str]:
        """Return the settings of finished runs that differ: the overrides of the run's command, or the differing values
        if the command did not give them.
        """
        own, found = leaves(self.settings), dict[str, None]()
        for run in self.own_runs:
            theirs = leaves(run.settings)
            if theirs == own or not run.finished:
                continue
            words = [word for word in run.record.command if "=" in word and not word.startswith("-")]
            try:
                given = leaves(loading.load(self.address, words).data) == theirs
            except registry.Problems:
                given = False
            differing = [f"{key}={value}" for key, value in theirs.items() if own.get(key) != value]
            if text := shlex.join(words if given else [*self.overrides, *differing] if differing else []):
                found[text] = None
        return list(found)[:MOST_OTHERS]

    @cached_property
    def with_defaults(self) -> Mapping[str, Any]:
        return {name: registry.dump(stage) for name, stage in self.recipe.stages.items()}

    @property
    def waiting(self) -> list[str]:
        made = self.recipe.stages
        return [
            name for name, stage in self.stages.items() if not stage.finished and issubclass(made[name].makes, Report)
        ]

    # -- comparing settings ----

    def _candidates(self) -> Iterator[Run]:
        """Yield the recipe's runs, then those of all others, the newest first."""
        yield from self.own_runs
        others = (folder for folder in self.runs.every_invocation() if folder.parent.name != self.name)
        yield from (Run(folder, quick=True) for folder in others)

    def _equal_in(self, run: Run) -> list[str]:
        """Return the stages that a run was to make with these settings, together with those of all stages before
        them.
        """
        written = mapping(run.written.get("stages"))
        equal: list[str] = []
        if run.written.get("seed", 0) != self.seed:
            return equal
        for name, needed in self.recipe.graph().items():
            if set(needed) <= set(equal) and name in written and self._is_equal(name, written[name]):
                equal.append(name)
        return equal

    def _is_equal(self, name: str, theirs: Any) -> bool:
        """Return True if settings are equal to those of a stage: as they are written, or with their defaults and
        without settings that cannot change a result.
        """
        own = mapping(self.written.get("stages"))[name]
        theirs = _moved(theirs, own)
        try:
            return theirs == own or registry.dump(registry.build(kinds.Stage, theirs)) == self.with_defaults[name]
        except registry.Problems:
            return False

    def _is_trial(self, stage: Stage) -> bool:
        return (record := stage.found) is not None and record.limit != self.limit

    def _counts(self, stage: Stage, run: Run, found: Mapping[str, Stage]) -> bool:
        """Return True if a stage has finished, with components of these versions and with the stages `found` before
        it.
        """
        if not stage.finished or self._is_trial(stage) or (record := stage.found) is None:
            return stage.finished and stage.found is None  # a broken one, whose results raise
        own = self.written.get("imports")
        if record.identity.get("sources") and _moved(run.written.get("imports"), own) != own:
            return False
        if _versions(record.identity.get("settings")) != _versions(
            registry.dump(self.recipe.stages[stage.name], for_key=True)
        ):
            return False
        return all(found[name].key == key for name, key in record.upstream.items() if name in found)

    def _changed(self, stage: Stage) -> Iterator[str]:
        """Yield the names of the files and components of a stage that have changed since."""
        record = stage.found
        if record is None:
            return
        if recorded := record.identity.get("sources"):
            known = set(recorded.values())
            yield from (file.name for file, digest in self.recipe.sources.items() if digest not in known)
        if defined := record.identity.get("definitions"):
            built = self.recipe.stages[stage.name]
            own = outside.digests(type(part) for part in (built, *(part for _, part in registry.walk(built))))
            yield from (name.rpartition(".")[2] for name, digest in own.items() if defined.get(name) != digest)
        made = datetime.strptime(record.made, TIME).replace(tzinfo=UTC).timestamp() + 1
        for place in filter(None, map(_place, _texts(stage.settings))):
            if place not in self.recipe.sources and place.exists() and place.stat().st_mtime > made:
                yield place.name


@lru_cache(maxsize=64)
def built(run: Run) -> Recipe | None:
    """Return a run's recipe with its stages built; None if another version of fgrl or of its components made it."""
    if isinstance(run, NamedRecipe):
        return run.recipe
    try:
        return loading.load(run.folder / RECIPE)
    except registry.Problems:
        return None


# ----------------------------------------------------------------------------------------------------------------------


def _moved(theirs: Any, own: Any) -> Any:
    """Return settings with the file names of other settings. Two files are the same if they have the same name, and
    their bytes are equal or one of them no longer exists.
    """
    if isinstance(theirs, dict) and isinstance(own, dict):
        return {key: _moved(value, own.get(key)) for key, value in theirs.items()}
    if isinstance(theirs, list) and isinstance(own, list) and len(theirs) == len(own):
        return list(map(_moved, theirs, own))
    if isinstance(theirs, str) and isinstance(own, str) and theirs != own:
        before, now = _place(theirs), _place(own)
        if before is not None and now is not None and Path(theirs).name == Path(own).name and now.exists():
            whole = before.is_file() and now.is_file()
            return own if (digest_of_file(before) == digest_of_file(now) if whole else not before.exists()) else theirs
    return theirs


def _place(text: str) -> Path | None:
    """Return the path of a file or folder, without a function behind it; None for any other text."""
    path = Path(text)
    if not path.is_absolute() or path.exists():
        return path if path.is_absolute() else None
    return path.with_name(path.name.partition(":")[0])


def _versions(settings: Any) -> list[str]:
    """Return the versions above 1 of components in settings: version 1 may be a default, which is left out."""
    return re.findall(r'"version": (?!1\b)\d+', json.dumps(settings))


def _texts(settings: Any) -> Iterator[str]:
    inside: Iterable[Any] = (
        settings.values() if isinstance(settings, Mapping) else settings if isinstance(settings, list) else ()
    )
    for value in inside:
        yield from [value] if isinstance(value, str) else _texts(value)
