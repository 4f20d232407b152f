"""Meaning of a word on the command line. Nothing is planned, run or written.

recipes/quickstart.yaml, FILE::ROW   a recipe with the overrides behind it: what has run with these settings
runs/<recipe>/<time>-<key>           a run
runs/<recipe>                        the runs of a recipe
runs/stages/policy-<key>             a stage, its `out`, or a model that the stage kept of a step (out/policies/40)
RUN:STAGE, RECIPE:STAGE              one of their stages
quickstart, policy                   a recipe that fgrl finds by its name, or else the only run or stage of this name
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fgrl.base import files, lazy
from fgrl.base.console import Console
from fgrl.base.errors import UsageError
from fgrl.runs.folders import Runs, newest_first
from fgrl.runs.records import STAGE
from fgrl.runs.run import Run
from fgrl.runs.source import Source
from fgrl.runs.stage import RECIPE, Stage
from fgrl.types import Checkpoint

loading = lazy.load("fgrl.experiments.recipe.loading")
recipes = lazy.load("fgrl.experiments.recipe")
registry = lazy.load("fgrl.registry")
specs = lazy.load("fgrl.kinds.specs")
named = lazy.load("fgrl.library.named")

MOST_LISTED = 8
AGAIN = "run the stage again"


def read_sources(
    paths: Sequence[Path],
    runs: Path,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    vary: Sequence[Sequence[str]] = (),
) -> list[Source]:
    """Return the sources that the paths name: each is a recipe, the folder of a run, or a folder of runs. Remarks on
    what has changed go to stderr.

    seeds: each recipe is read with each of these seeds, and a folder's runs are those with these seeds; empty: the
    recipe's own seed, or all runs. vary: lists of overrides; each recipe gets one override of each list. Overrides and
    variations are for recipes: a run in a folder is already finished.

    Raises `Problems` of a recipe; `UsageError` for a folder without runs or without these seeds, or for overrides
    without a recipe.
    """
    if all(path.is_dir() for path in paths) and (overrides or vary):
        given = " ".join([*overrides, *(texts[0] for texts in vary)])
        raise UsageError(f"{given}: overrides are for recipes, and these are folders of runs, which are finished")
    variations = _variations(overrides, seeds, vary)
    sources = []
    for path in paths:
        if path.is_dir():
            sources.append(_folder_source(path, seeds))
        else:
            kept = Runs(runs)
            kept.check()
            every = [named.NamedRecipe(loading.load(path, words), words, kept) for words in variations]
            sources.append(Source(path, every))
            for remark in dict.fromkeys(itertools.chain.from_iterable(each.remarks() for each in every)):
                Console().alert(f"note: {remark}")
    return sources


def run_folders(path: Path) -> list[Path]:
    """Return the folder of a run itself, or the runs in a folder of runs, oldest first."""
    inside = [] if (path / RECIPE).exists() else newest_first(path.glob("*Z-*"))[::-1]
    return inside or [path]


def newest_runs(path: Path, runs: Path, overrides: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Path]:
    """Return the folders of a recipe's newest runs: with these overrides, and one for each seed. Without overrides and
    seeds, return the newest of all its runs.

    The folder of a run yields itself, a folder of runs all of them. Raises `UsageError` if there is no such run.
    """
    if path.is_dir():
        return [run.folder for run in _folder_source(path, seeds).recipes] if seeds else run_folders(path)
    if not overrides and not seeds:
        known = Runs(runs).invocations(recipes.recipe_name(path))
        if not known:
            loading.load(path)  # another kind of file is refused as such
            raise UsageError(f"{path} has not run (no runs in {runs / recipes.recipe_name(path)}): fgrl run {path}")
        return known[:1]
    folders = []
    for words in _variations(overrides, seeds, ()):
        recipe = named.NamedRecipe(loading.load(path, words), words, Runs(runs))
        if (newest := recipe.newest_run()) is None:
            raise UsageError(f"it has not run: {recipe.command}")
        folders.append(newest.folder)
    return folders


def model(word: str, runs: Path, overrides: Sequence[str] = (), stage: str | None = None) -> Stage:
    """Return the stage (and its step) of the trained model that a word names. Its files are compared with their
    checksums.

    stage: the stage of a recipe or a run, instead of `:STAGE` in the word. Raises `UsageError` for a word that names no
    trained model or several, with the existing ones; `Problems` of a recipe; `DataError` for a product that has
    changed.
    """
    loading.know_components()  # a model that answers needs its engine
    word = with_folder(word, runs)
    found = _kept_model(word) or _stage(word, runs, overrides, stage, _final)
    record = found.checked(AGAIN)
    if not found.is_model:
        raise UsageError(
            f"stage {found.name} makes {record.makes or 'something else'}, not a model: name a stage that trains one"
        )
    return found


def stage(word: str, runs: Path, overrides: Sequence[str] = ()) -> Stage:
    """Return the finished stage that a word names. For a recipe or a run without `:STAGE`, return its only stage with a
    reward.
    """
    found = _stage(with_folder(word, runs), runs, overrides, None, _with_reward)
    found.checked(AGAIN)
    return found


def names_a_stage(word: str, runs: Path) -> bool:
    """Return True if the word can name a stage, a run or a recipe, and not a model on the hub. Raises `UsageError` if
    it names several.
    """
    word = with_folder(word, runs)
    path = files.expanded(word)
    if files.is_folder(path):
        if (path / "fgrl.json").exists() or Stage(path).has_record:
            return True
        if any(
            (path / name).is_file() for name in specs.MODEL_FILES
        ):  # an exported model, which has a recipe beside it
            return False
        return (path / RECIPE).exists() or any(path.glob("*Z-*")) or Runs(path).stages.is_dir()
    source, inner = _split(word)
    return files.exists(recipes.Address.parse(source).file) or inner is not None or ".yaml" in word


def with_folder(word: str, runs: Path) -> str:
    """Return the word with the path of the recipe, run or stage that it names; unchanged if it is a path or names
    nothing.

    A recipe that `fgrl run` finds by its name takes precedence over runs and stages. Raises `UsageError` if several
    runs and stages have the name.
    """
    if files.exists(recipes.Address.parse(word).file):
        return word
    source, colon, inner = word.rpartition(":")
    either = [(word, ""), (source, f":{inner}")] if colon and inner and source else [(word, "")]
    for name, rest in either:
        recipe = None if name.endswith(":") else recipes.by_name(name)
        if recipe is not None:
            return f"{recipe}{rest}"
        places = [*_called(name, Runs(runs), stages=not rest)]
        if len(places) > 1:
            more = f" and {len(places) - MOST_LISTED} more (fgrl runs)" if len(places) > MOST_LISTED else ""
            raise UsageError(
                f"{name}: {len(places)} runs and stages have this name; name one by its folder: "
                f"{', '.join(map(str, places[:MOST_LISTED]))}{more}"
            )
        if places:
            return f"{places[0]}{rest}"
    return word


# ----------------------------------------------------------------------------------------------------------------------


def _variations(overrides: Sequence[str], seeds: Sequence[int], vary: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the overrides of each variation."""
    alternatives = [*vary, *([[f"seed={seed}" for seed in seeds]] if seeds else [])]
    return [[*overrides, *words] for words in itertools.product(*alternatives)]


def _folder_source(path: Path, seeds: Sequence[int]) -> Source:
    """Return the runs in a folder; of runs with the same key (the same recipe, run twice), only the newest."""
    every = [Run(folder) for folder in run_folders(path) if (folder / RECIPE).exists()]
    if not every:
        inside = ", ".join(str(each.parent) for each in sorted(path.glob("*/*Z-*"))[-1:])
        raise UsageError(
            f"{path} contains no runs" + (f" itself: name the runs of one recipe, as in {inside}" if inside else "")
        )
    newest = list({(run.name, run.record.key): run for run in every}.values())
    chosen = [run for run in newest if not seeds or run.seed in seeds]
    if not chosen:
        known = ", ".join(str(seed) for seed in sorted({run.seed for run in newest}))
        raise UsageError(f"{path} has no run with seed {' or '.join(map(str, seeds))}; it has {known}")
    chosen.sort(key=lambda run: seeds.index(run.seed) if seeds else run.seed)
    absent = [seed for seed in seeds if seed not in {run.seed for run in chosen}]
    return Source(path, chosen, [f"{path} has no run with seed {seed}" for seed in absent])


def _called(name: str, runs: Runs, *, stages: bool) -> Iterator[Path]:
    """Yield the folders of runs, the newest first, then those of finished stages. The name selects all that have it, or
    the one folder of this name.
    """
    if not name or "/" in name or ":" in name or name.startswith("."):
        return
    if runs.root.is_dir():
        yield from runs.invocations(name)
        for recipe in sorted(runs.root.iterdir()):
            yield from (folder for folder in runs.invocations(recipe.name) if folder.name == name)
    if stages and runs.stages.is_dir():
        fitting = [each for each in runs.stages.glob("*-*") if name in (each.name, each.name.rpartition("-")[0])]
        done = [each for each in fitting if Stage(each).is_done()]
        yield from sorted(done, key=lambda folder: folder.stat().st_mtime, reverse=True)


def _kept_model(word: str) -> Stage | None:
    """Return the stage whose folder or product the word is, or which contains the model of a step; None for any other
    word.
    """
    path = files.expanded(word)
    if not files.is_folder(path):
        return None
    path = path.resolve()
    if Stage(path).has_record:
        return Stage(path)
    if path.name == "out" and Stage(path.parent).has_record:
        return Stage(path.parent)
    if path.parent.name == specs.POLICIES and Stage(path.parents[2]).has_record:
        return Stage(path.parents[2], step=int(path.name))
    if (path / "out").is_dir() or (path / "fgrl.json").is_file():
        raise UsageError(
            f"{word}: it is not the folder of a finished stage (there is no {STAGE}): fgrl run finishes it"
        )
    return None


def _split(word: str) -> tuple[str, str | None]:
    """Return `RUN:STAGE` or `FILE::ROW:STAGE` as (source, stage); the stage is None if there is none."""
    source, colon, inner = word.rpartition(":")
    if (
        colon
        and inner
        and not source.endswith(":")
        and "/" not in inner
        and files.exists(recipes.Address.parse(source).file)
    ):
        return source, inner
    return word, None


def _stage(
    word: str, runs: Path, overrides: Sequence[str], name: str | None, choose: Callable[[Run, str], str]
) -> Stage:
    path = files.expanded(word)
    if files.is_folder(path) and Stage(path).has_record:
        return Stage(path.resolve())
    source, inner = _split(word)
    if inner is not None and name is not None and inner != name:
        raise UsageError(f"{word} names the stage {inner}, and --stage names {name}: give one of the two")
    run = _one_run(source, runs, overrides)
    wanted = inner or name or choose(run, source)
    if wanted not in run.stages:
        address = recipes.Address.parse(source)
        row = f"; the row of this name is {address.file}::{wanted}" if _has_row(address.file, wanted) else ""
        raise UsageError(registry.unknown("stage", wanted, list(run.stages)) + row)
    if wanted not in run.finished:
        raise UsageError(f"stage {wanted} has not run: {_command(run, source)}")
    return Stage(run.stages[wanted].folder, wanted, str(run.settings.get("about") or ""))


def _one_run(source: str, runs: Path, overrides: Sequence[str]) -> Run:
    file = recipes.Address.parse(source).file
    if not files.exists(file):
        near = recipes.meant(file)
        guess = "" if near is None else f'; did you mean "{near}"?'
        raise UsageError(
            f"{source}: no such recipe, run or stage folder{guess}  (a stage is named by its folder, as RUN:STAGE, or as RECIPE:STAGE)"
        )
    (found,) = read_sources([Path(source)], runs, overrides)
    if len(found.recipes) > 1:
        places = ", ".join(str(run.folder) for run in found.recipes)
        raise UsageError(f"{source} holds {len(found.recipes)} runs: name one of them: {places}")
    return found.recipes[0]


def _has_row(file: Path, name: str) -> bool:
    try:
        return file.is_file() and name in recipes.rows(file)
    except registry.Problems:
        return False


def _final(run: Run, source: str) -> str:
    """Return the trained model that no other training of the run began with; language models take precedence over
    models with another head. Raises `UsageError` if there are several, or if a stage that trains has not run.
    """
    trains = _checkpoints(run)
    missing = [name for name in trains if name not in run.finished]
    if missing:
        done = [name for name in trains if name in run.finished]
        other = f"; or name a finished stage: {_choices(source, done)}" if done else ""
        raise UsageError(f"stage {', '.join(missing)} has not run: {_command(run, source)}{other}")
    models = [stage for name in trains if (stage := run.stages[name]).is_model and stage.found is not None]
    models = [stage for stage in models if stage.head == "lm"] or models
    used = {key for stage in models for key in stage.record.upstream.values()}
    last = [stage.name for stage in models if stage.key not in used]
    if not last:
        raise UsageError(f"{source} has trained no model; it has the stages {', '.join(run.finished) or 'none'}")
    if len(last) > 1:
        raise UsageError(f"{source} trained {len(last)} models: name one of them: {_choices(source, last)}")
    return last[0]


def _checkpoints(run: Run) -> list[str]:
    """Return the stages that make a model, finished or not."""
    if (recipe := named.built(run)) is not None:
        return [name for name, made in recipe.stages.items() if issubclass(made.makes, Checkpoint)]
    made = {name: stage.found for name, stage in run.finished.items()}
    return [name for name, record in made.items() if record is not None and record.makes == Checkpoint.__name__]


def _with_reward(run: Run, source: str) -> str:
    rewarded = [name for name, stage in run.stages.items() if stage.settings.get("reward")]
    training = [name for name in rewarded if run.stages[name].settings.get("name") == "rl"] or rewarded
    if len(training) != 1:
        what = f"has {len(training)} stages with a reward" if training else "has no stage with a reward"
        raise UsageError(f"{source} {what}: name a stage: {_choices(source, training or list(run.finished))}")
    return training[0]


def _choices(source: str, names: Sequence[str]) -> str:
    return ", ".join(f"{source}:{name}" for name in names)


def _command(run: Run, source: str) -> str:
    return "; ".join(filter(None, (run.command or f"the run {source} did not finish it", run.with_other_settings())))
