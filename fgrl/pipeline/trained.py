"""From what a person names on the command line to a trained model: `fgrl export`, `fgrl chat`.

A word is one of

    runs/stages/policy-<key>          the folder of a stage, its `out`, or a model that the stage kept of a step (out/policies/40)
    runs/<recipe>/<time>-<key>        the folder of a run: its final trained model
    recipes/quickstart.yaml           a recipe (FILE, FILE::ROW): the same, of what has run with these settings
    RUN:STAGE, RECIPE:STAGE           one of their stages
    policy, quickstart                the only run or stage of this name below --runs, or a recipe that fgrl finds by its name
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fgrl import files, registry
from fgrl import recipe as recipes
from fgrl.errors import DataError, UsageError
from fgrl.models.sources import POLICIES
from fgrl.pipeline import bare_names, finished
from fgrl.pipeline.folders import Runs
from fgrl.recipe import Address
from fgrl.results.reading import mapping
from fgrl.results.records import STAGE, Broken, StageRecord, check_contents, find_stage, folder_of, has_stage
from fgrl.results.stage_folder import StageFolder
from fgrl.specs import MODEL_FILES
from fgrl.types import Checkpoint


@dataclass(frozen=True)
class TrainedModel:
    """A model that a stage made."""

    name: str
    """The stage's name."""
    folder: Path
    """With the model's files."""
    stage: Path
    """The stage's folder."""
    step: int | None = None
    """Step of a model that the training kept besides its product."""
    about: str = ""
    """Description of the recipe, where it is known."""

    @property
    def head(self) -> str:
        return head(self.folder)


def model(word: str, runs: Path, overrides: Sequence[str] = (), stage: str | None = None) -> TrainedModel:
    """Return the trained model that a word names, with its files compared to their checksums. Nothing is run or
    written.

    stage: the stage of a recipe or a run, instead of `:STAGE` in the word. Raises `UsageError` for a word that names no
    trained model or several, with those that there are; `Problems` of a recipe; `DataError` for a product that has
    changed.
    """
    recipes.know_components()  # a model that answers needs its engine
    word = bare_names.with_folder(word, runs)
    kept = _kept_model(word)
    if kept is not None:
        named, folder, step = kept
    else:
        named = _stage(word, runs, overrides, stage, _final)
        folder, step = named.out, None
    record = _checked(named.folder)
    if not (folder / "fgrl.json").is_file():
        raise UsageError(
            f"stage {named.name} makes {record.makes or 'something else'}, not a model: name a stage that trains one"
        )
    return TrainedModel(named.name, folder, named.folder.resolve(), step, named.about)


def stage(word: str, runs: Path, overrides: Sequence[str] = ()) -> StageFolder:
    """Return the finished stage that a word names; of a recipe or a run without `:STAGE` the only one with a reward."""
    named = _stage(bare_names.with_folder(word, runs), runs, overrides, None, _with_reward)
    _checked(named.folder)
    return named


def names_a_stage(word: str, runs: Path) -> bool:
    """Return True if the word can name a stage, a run or a recipe, and not a model on the hub. Raises `UsageError`
    where it names several.
    """
    word = bare_names.with_folder(word, runs)
    path = files.expanded(word)
    if files.is_folder(path):
        if (path / "fgrl.json").exists() or has_stage(path):
            return True
        if any((path / name).is_file() for name in MODEL_FILES):  # an exported model, which has a recipe beside it
            return False
        return (path / "recipe.yaml").exists() or any(path.glob("*Z-*")) or Runs(path).stages.is_dir()
    source, inner = _split(word)
    return files.exists(Address.parse(source).file) or inner is not None or ".yaml" in word


def products(named: StageFolder) -> dict[str, Path]:
    """Return the products of the stages that a stage refers to, by their names in its settings, compared with their
    checksums.
    """
    made = {}
    for name, key in named.record.upstream.items():
        folder = folder_of(named.folder.resolve().parent, key)
        if folder is None:
            raise DataError(f"stage {named.name} was made with {name}-{key}, whose folder is gone")
        _checked(folder)
        made[name] = folder / "out"
    return made


def head(folder: Path) -> str:
    """Return the head of the model in a product: "lm", "scalar" or "token"."""
    return str(mapping(Checkpoint(folder).about().get("model")).get("head") or "lm")


# ----------------------------------------------------------------------------------------------------------------------


def _kept_model(word: str) -> tuple[StageFolder, Path, int | None] | None:
    """Return a stage's folder, its product, or a model of a step in it; None for any other word."""
    path = files.expanded(word)
    if not files.is_folder(path):
        return None
    path = path.resolve()
    if has_stage(path):
        return StageFolder(path), path / "out", None
    if path.name == "out" and has_stage(path.parent):
        return StageFolder(path.parent), path, None
    if path.parent.name == POLICIES and has_stage(path.parents[2]):
        return StageFolder(path.parents[2]), path, int(path.name)
    if (path / "out").is_dir() or (path / "fgrl.json").is_file():
        raise UsageError(
            f"{word}: it is not the folder of a finished stage (there is no {STAGE}): fgrl run finishes it"
        )
    return None


def _split(word: str) -> tuple[str, str | None]:
    """`RUN:STAGE` and `FILE::ROW:STAGE` in two; the second is None without a stage."""
    source, colon, inner = word.rpartition(":")
    if colon and inner and not source.endswith(":") and "/" not in inner and files.exists(Address.parse(source).file):
        return source, inner
    return word, None


def _stage(word: str, runs: Path, overrides: Sequence[str], name: str | None, choose: Any) -> StageFolder:
    path = files.expanded(word)
    if files.is_folder(path) and has_stage(path):
        return StageFolder(path.resolve())
    source, inner = _split(word)
    if inner is not None and name is not None and inner != name:
        raise UsageError(f"{word} names the stage {inner}, and --stage names {name}: give one of the two")
    run = _one_run(source, runs, overrides)
    wanted = inner or name
    known = list(mapping(run.data.get("stages"))) or list(run.folders)
    if wanted is None:
        wanted = choose(run, source)
    if wanted not in known:
        address = Address.parse(source)
        row = f"; the row of this name is {address.file}::{wanted}" if _has_row(address.file, wanted) else ""
        raise UsageError(registry.unknown("stage", wanted, known) + row)
    if wanted not in run.folders:
        raise UsageError(f"stage {wanted} has not run: {_command(run, source)}")
    return StageFolder(run.folders[wanted], wanted, str(run.data.get("about") or ""))


def _one_run(source: str, runs: Path, overrides: Sequence[str]) -> finished.FinishedRecipe:
    path = Path(source)
    if not files.exists(Address.parse(path).file):
        near = recipes.meant(Address.parse(path).file)
        guess = "" if near is None else f'; did you mean "{near}"?'
        raise UsageError(
            f"{source}: no such recipe, run or stage folder{guess}  (a stage is named by its folder, as RUN:STAGE, or as RECIPE:STAGE)"
        )
    folder = path if files.is_folder(path) else None
    source_runs = finished.read_sources([folder or path], runs, overrides)[0]
    if len(source_runs.recipes) > 1:
        places = ", ".join(str(each.file.parent) for each in source_runs.recipes)
        raise UsageError(f"{source} holds {len(source_runs.recipes)} runs: name one of them: {places}")
    return source_runs.recipes[0]


def _has_row(file: Path, name: str) -> bool:
    try:
        return file.is_file() and name in recipes.rows(file)
    except registry.Problems:
        return False


def _final(run: finished.FinishedRecipe, source: str) -> str:
    """Return the trained model that no other training of the run began with; language models go before models with
    another head.

    Raises `UsageError` where there are several, or where a stage that trains has not run.
    """
    trains = _checkpoints(run)
    missing = [name for name in trains if name not in run.folders]
    if missing:
        raise UsageError(
            f"stage {', '.join(missing)} has not run: {_command(run, source)}"
            + (
                f"; or name a finished stage: {_choices(source, [name for name in trains if name in run.folders])}"
                if len(missing) < len(trains)
                else ""
            )
        )
    heads = {
        name: head(run.folders[name] / "out") for name in trains if (run.folders[name] / "out" / "fgrl.json").is_file()
    }
    pool = [name for name, head in heads.items() if head == "lm"] or list(heads)
    stages = {name: record for name in pool if (record := find_stage(run.folders[name]))}
    used = {key for record in stages.values() for key in record.upstream.values()}
    last = [name for name, record in stages.items() if record.key not in used]
    if not last:
        raise UsageError(f"{source} has trained no model; it has the stages {', '.join(run.folders) or 'none'}")
    if len(last) > 1:
        raise UsageError(f"{source} trained {len(last)} models: name one of them: {_choices(source, last)}")
    return last[0]


def _checkpoints(run: finished.FinishedRecipe) -> list[str]:
    """Stages that make a model, finished or not."""
    if run.recipe is not None:
        return [name for name, made in run.recipe.stages.items() if issubclass(made.makes, Checkpoint)]
    made = {name: find_stage(folder) for name, folder in run.folders.items()}
    return [name for name, record in made.items() if record is not None and record.makes == Checkpoint.__name__]


def _with_reward(run: finished.FinishedRecipe, source: str) -> str:
    stages = mapping(run.data.get("stages"))
    rewarded = [name for name, settings in stages.items() if mapping(settings).get("reward")]
    training = [name for name in rewarded if mapping(stages[name]).get("name") == "rl"] or rewarded
    if len(training) != 1:
        what = f"has {len(training)} stages with a reward" if training else "has no stage with a reward"
        raise UsageError(f"{source} {what}: name a stage: {_choices(source, training or list(run.folders))}")
    return training[0]


def _choices(source: str, names: Sequence[str]) -> str:
    return ", ".join(f"{source}:{name}" for name in names)


def _command(run: finished.FinishedRecipe, source: str) -> str:
    return "; ".join(filter(None, (run.command or f"the run {source} did not finish it", run.with_other_settings())))


def _checked(folder: Path) -> StageRecord:
    """Return the stage's record, after its product was compared with the checksums."""
    try:
        return check_contents(folder)
    except Broken as broken:
        raise DataError(f"{broken}: run the stage again") from None
