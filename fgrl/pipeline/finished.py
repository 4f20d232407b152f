"""Recipes with overrides and seeds, and folders of runs, as the evaluations that they finished.

The one way from what a person names on the command line to results: `table`, `compare`, `frontier`, `report` and the
end of `run`.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fgrl import recipe as recipes
from fgrl import registry
from fgrl.console import Console
from fgrl.errors import DataError, UsageError
from fgrl.evaluation.comparison import METRICS
from fgrl.pipeline.folders import Runs, recipe_name
from fgrl.pipeline.planning import Plan, plan
from fgrl.pipeline.run import Run, scratch_run
from fgrl.recipe import Recipe
from fgrl.results.differing import leaves
from fgrl.results.evaluations import Evaluation, RecipeResults, read_evaluation
from fgrl.results.records import Broken, check_contents, has_stage
from fgrl.results.run_folder import RunFolder, RunStage
from fgrl.results.run_folder import load as load_run_folder
from fgrl.types import Report

RUNS = Path("runs")
"""Default folder of `fgrl run`."""
MOST_OTHERS = 3
"""Runs with other settings that are named."""


@dataclass
class FinishedRecipe:
    """One recipe with one seed and one set of settings, as far as it has run."""

    name: str
    seed: int
    data: dict[str, Any]
    """The recipe as plain data."""
    file: Path
    """The recipe's file; of a run's folder the resolved recipe in it."""
    runs: Runs
    folders: dict[str, Path]
    """Folders of the finished stages, by name; of broken ones too, whose results raise."""
    evaluations: list[str]
    """Stages that measure, finished or not."""
    overrides: list[str] = field(default_factory=list)
    command: str = ""
    """Command that runs it; empty for the folder of a run."""
    loaded: Recipe | None = None
    """The recipe, where it was loaded to be planned."""

    @property
    def unfinished(self) -> list[str]:
        return [name for name in self.evaluations if name not in self.folders]

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe with its stages built; None for a run of another version of fgrl or of its components."""
        if self.loaded is not None:
            return self.loaded
        try:
            return recipes.load(self.file)
        except registry.Problems:
            return None

    @property
    def results(self) -> RecipeResults:
        """The numbers of the finished evaluations. Raises `DataError` when they cannot be read."""
        finished = {name: self.evaluation(name) for name in self.evaluations if name in self.folders}
        return RecipeResults(self.name, leaves(self.data), finished)

    def evaluation(self, name: str) -> Evaluation:
        """Return the numbers of a finished evaluation. Raises `DataError` when they cannot be read."""
        notes: list[str] = []
        folder = self.folders[name]
        try:
            check_contents(folder)
        except Broken as broken:
            raise DataError(
                f"{broken}: `fgrl doctor {self.runs.root}` marks the stage as unfinished, and `fgrl run` then runs it again"
            ) from None
        evaluation = read_evaluation(folder / "out", notes)
        if notes:
            raise DataError(f"{folder / 'out'}: {' '.join(notes)}")
        return evaluation

    @contextmanager
    def scratch_run(self, name: str) -> Iterator[Run]:
        """Give a run of a stage in a temporary folder, with the products of the stages before it that have finished."""
        assert self.recipe is not None
        upstream = {other: self.folders[other] / "out" for other in self.recipe.graph()[name] if other in self.folders}
        made_with = {"seed": self.seed, "accelerator": self.recipe.stages[name].accelerator(), "console": Console()}
        with scratch_run(name, products=upstream, cache=self.runs.cache, **made_with) as run:
            yield run

    def other_runs(self) -> list[str]:
        """Return the overrides of the newest runs of a recipe that has not run with these settings; where a command did
        not give them, the values that differ.
        """
        own, found = leaves(self.data), []
        for folder in self.runs.invocations(self.name):
            run = load_run_folder(folder)
            theirs = leaves(run.settings)
            if theirs == own or self.loaded is None or not any(stage.finished for stage in run.stages):
                continue
            words = [word for word in run.record.command if "=" in word and not word.startswith("-")]
            try:
                given = leaves(recipes.load(self.loaded.address, words).data) == theirs
            except registry.Problems:
                given = False
            differing = [f"{key}={value}" for key, value in theirs.items() if own.get(key) != value]
            text = shlex.join(words if given else [*self.overrides, *differing] if differing else [])
            found += [text] if text and text not in found else []
        return found[:MOST_OTHERS]

    def with_other_settings(self) -> str:
        """Return the command for the settings that have run instead of these, in a sentence; empty where none have."""
        address = self.file if self.loaded is None else self.loaded.address
        asked = [word for word in sys.argv[1:] if word not in self.overrides]
        typed = asked if Path(sys.argv[0]).name in ("fgrl", "__main__.py") else ["table", str(address)]
        others = " or ".join(f"{shlex.join(['fgrl', *typed])} {words}" for words in self.other_runs())
        return f"{self.name} has run with other settings: {others}" if others else ""

    def settings(self, names: Iterable[str]) -> dict[str, Any]:
        """Return settings of these stages and of all before them, with their defaults; without, where the recipe cannot
        be built.
        """
        if self.recipe is None:
            return dict(self.data.get("stages", {}))
        graph, wanted = self.recipe.graph(), set(names)
        for stage in reversed(graph):
            if stage in wanted:
                wanted |= set(graph[stage])
        return {name: registry.dump(stage) for name, stage in self.recipe.stages.items() if name in wanted}


@dataclass
class Source:
    """Meaning of one word on the command line: a recipe with each seed and variation, or the runs of a folder."""

    path: Path
    recipes: list[FinishedRecipe]
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.recipes[0].name

    def by_seed(self) -> dict[int, FinishedRecipe]:
        """Raise `UsageError` when it holds one seed with several settings."""
        result: dict[int, FinishedRecipe] = {}
        for finished in self.recipes:
            other = result.setdefault(finished.seed, finished)
            if other is not finished:
                files = " and ".join(str(each.file.parent) for each in (other, finished))
                raise UsageError(
                    f"{self.path} holds runs with seed {finished.seed} and different settings: {files}; name one of them"
                )
        return result


def read_sources(
    paths: Sequence[Path],
    runs: Path,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    vary: Sequence[Sequence[str]] = (),
) -> list[Source]:
    """Each path is a recipe, the folder of a run, or a folder of runs. Nothing is run or written.

    seeds: each recipe with each of them, or the runs that have them; empty: the recipe's own, or all. vary: lists of
    overrides of which each recipe gets one of each list. Overrides and variations are for recipes: a run in a folder is
    finished as it is.

    Raises `Problems` of a recipe; `UsageError` for a folder without runs or without these seeds, or when there are
    overrides and no recipe.
    """
    if all(path.is_dir() for path in paths) and (overrides or vary):
        given = " ".join([*overrides, *(texts[0] for texts in vary)])
        raise UsageError(f"{given}: overrides are for recipes, and these are folders of runs, which are finished")
    variations = _variations(overrides, seeds, vary)
    return [
        _folder_source(path, seeds)
        if path.is_dir()
        else Source(path, [of_plan(plan(recipes.load(path, words), runs), words) for words in variations])
        for path in paths
    ]


def results_of(sources: Iterable[Source]) -> list[RecipeResults]:
    """Raise `DataError` when the numbers of a finished evaluation cannot be read."""
    return [finished.results for source in sources for finished in source.recipes]


def run_folders(path: Path) -> list[Path]:
    """Return the folder of a run itself, or the runs in a folder of runs, oldest first."""
    inside = [] if (path / "recipe.yaml").exists() else sorted(path.glob("*Z-*"))
    return inside or [path]


def newest_runs(path: Path, runs: Path, overrides: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Path]:
    """Folders of a recipe's newest runs: of the one with these overrides and of each seed; without both, of any.

    A folder of a run is itself, a folder of runs all of them. Raises `UsageError` when there is no such run.
    """
    if path.is_dir():
        return (
            [Path(finished.file).parent for finished in _folder_source(path, seeds).recipes]
            if seeds
            else run_folders(path)
        )
    known = Runs(runs).invocations(recipe_name(path))
    if not overrides and not seeds:
        if not known:
            recipes.load(path)  # another kind of file is refused as such
            raise UsageError(f"{path} has not run (no runs in {runs / recipe_name(path)}): fgrl run {path}")
        return known[:1]
    folders = []
    for words in _variations(overrides, seeds, ()):
        key = plan(recipes.load(path, words), runs).short
        folder = next((folder for folder in known if _key_of(folder) == key), None)
        if folder is None:
            raise UsageError(f"it has not run: {_command(path, words, runs)}")
        folders.append(folder)
    return folders


def of_plan(made: Plan, overrides: Sequence[str] = ()) -> FinishedRecipe:
    """Return a recipe with what `made.runs` has of it."""
    return FinishedRecipe(
        name=made.name,
        seed=made.recipe.seed,
        data=made.recipe.data,
        file=Path(made.recipe.path),
        runs=made.runs,
        folders={stage.name: stage.dir for stage in made.stages if has_stage(stage.dir)},
        evaluations=[stage.name for stage in made.stages if _measures(stage.stage)],
        overrides=list(overrides),
        command=_command(made.recipe.address, overrides, made.runs.root),
        loaded=made.recipe,
    )


# ----------------------------------------------------------------------------------------------------------------------


def _variations(overrides: Sequence[str], seeds: Sequence[int], vary: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the overrides of each variation."""
    alternatives = [*vary, *([[f"seed={seed}" for seed in seeds]] if seeds else [])]
    return [[*overrides, *words] for words in itertools.product(*alternatives)]


def _folder_source(path: Path, seeds: Sequence[int]) -> Source:
    """Return the runs in a folder; the newest of those with the same key (the same recipe, run twice)."""
    folders = [folder for folder in run_folders(path) if (folder / "recipe.yaml").exists()]
    if not folders:
        inside = ", ".join(str(each.parent) for each in sorted(path.glob("*/*Z-*"))[-1:])
        raise UsageError(
            f"{path} contains no runs" + (f" itself: name the runs of one recipe, as in {inside}" if inside else "")
        )
    loaded = ((folder, load_run_folder(folder)) for folder in folders)
    newest = {(run.record.recipe, run.record.key): (folder, run) for folder, run in loaded}
    finished = [of_run(folder, run) for folder, run in newest.values()]
    chosen = [each for each in finished if not seeds or each.seed in seeds]
    if not chosen:
        known = ", ".join(str(seed) for seed in sorted({each.seed for each in finished}))
        raise UsageError(f"{path} has no run with seed {' or '.join(map(str, seeds))}; it has {known}")
    chosen.sort(key=lambda each: seeds.index(each.seed) if seeds else each.seed)
    absent = [seed for seed in seeds if seed not in {each.seed for each in chosen}]
    return Source(path, chosen, [f"{path} has no run with seed {seed}" for seed in absent])


def of_run(folder: Path, run: RunFolder) -> FinishedRecipe:
    """Return the recipe of a run, as far as it has run."""
    seed = run.settings.get("seed", 0)
    return FinishedRecipe(
        name=run.record.recipe,
        seed=seed if isinstance(seed, int) else 0,
        data=run.settings,
        file=folder / "recipe.yaml",
        runs=Runs(folder.resolve().parent.parent),
        folders={stage.name: stage.folder for stage in run.stages if stage.finished and stage.folder is not None},
        evaluations=[stage.name for stage in run.stages if _is_evaluation(stage)],
    )


def _is_evaluation(stage: RunStage) -> bool:
    """Return True if it has numbers, or would have if it had finished."""
    if stage.finished and stage.folder is not None:
        return (stage.folder / "out" / METRICS).exists()
    recipes.know_components()
    return stage.component in registry.names("stage") and _measures(registry.get("stage", stage.component))


def _measures(stage: Any) -> bool:
    return issubclass(stage.makes, Report)


def _key_of(folder: Path) -> str:
    """Return the short key in `<UTC>-<short key>`, which a number may follow."""
    return folder.name.rpartition("-")[2].partition(".")[0]


def _command(path: Path | str, overrides: Sequence[str], runs: Path) -> str:
    where = [] if runs == RUNS else ["--runs", str(runs)]
    return shlex.join(["fgrl", "run", str(path), *overrides, *where])
