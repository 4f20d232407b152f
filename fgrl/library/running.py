"""`fgrl.run`, `fgrl.plan`, `fgrl.validate` and `fgrl.register`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl import registry
from fgrl.base import lazy
from fgrl.base.console import Console
from fgrl.base.errors import UsageError, disk_error
from fgrl.base.visible import quantity
from fgrl.experiments import pipeline, recipe
from fgrl.kinds.functions import as_user_error
from fgrl.library.finished_runs import FinishedRun, open_run
from fgrl.library.inputs import RUNS, Overrides, libraries_quiet, load_recipe, override_texts, random_state_kept
from fgrl.registry import Problems, outside

if TYPE_CHECKING:
    from pandas import DataFrame
pandas = lazy.load("pandas")


def register(name: str) -> Callable[[Any], Any]:
    """Register a component of a notebook or a script under a name for recipes: `@fgrl.register("every_third")`.

    `fgrl.run` in this process can then use the component. Its source counts for cache keys, so a change of the
    component runs its stages again. Raises TypeError and ValueError as `fgrl.registry.register` does.
    """
    recipe.know_components()  # so that a name which fgrl uses is reported here
    declare = registry.register(name)

    def noted(cls: Any) -> Any:
        outside.note_user_files(map(Path, outside.files_of(cls)) if isinstance(cls, type) else ())
        return declare(cls)

    return noted


def run(
    source: Path | str,
    overrides: Overrides | None = None,
    *,
    seed: int | None = None,
    runs: Path | str = RUNS,
    limit: int | None = None,
    only: str | Sequence[str] = (),
    start: str | None = None,
    wandb: str | None = None,
    progress: bool = True,
    page: bool = True,
) -> FinishedRun:
    """Run the missing stages of a recipe. Return the run: its stages, folders and numbers.

    source: a recipe's file, or a row of it (`FILE::ROW`). overrides: values by dotted key, `{"stages.policy.train.lr":
    1e-5}`; None drops a key, and a component may be given as an object. limit: maximum number of samples and steps in
    every stage, for a trial. only, start: run only these stages; this stage and those after it. progress: write
    messages and progress to stderr. page: write `report.html`, which `fgrl report` can also do later.

    Raises `Problems` with every mistake of the recipe, `UserCodeError` for an error in your own code, which names its
    file and line, and otherwise the error that ended a stage. Finished stages are kept, and a second call continues.
    The state of the random generators of Python, NumPy and torch does not change.
    """
    texts = override_texts(overrides, seed)
    loaded = load_recipe(source, texts)
    options = pipeline.Options(
        only=[only] if isinstance(only, str) else list(only),
        start=start,
        limit=limit,
        wandb=wandb,
        arguments=texts,
        command=_command(loaded.address, texts, Path(runs), limit),
        raises=True,
        page=page,
    )
    _check_processes(loaded)
    with random_state_kept():
        summary = pipeline.execute(loaded, Path(runs), options, Console(quiet=not progress))
    if (failure := summary.failure) is not None:
        if (explained := as_user_error(failure) or disk_error(failure)) is not None:
            raise explained from None
        raise failure
    if summary.folder is None:
        raise UsageError("a launcher (torchrun, srun) started this process: run the recipe with `fgrl run`")
    return open_run(summary.folder)


def plan(
    source: Path | str,
    overrides: Overrides | None = None,
    *,
    seed: int | None = None,
    runs: Path | str = RUNS,
    limit: int | None = None,
) -> DataFrame:
    """Return the stages that would run, the cached stages, and the reasons; one row for each stage, in order of
    execution. Nothing is run or written.

    The columns of the pandas DataFrame: "stage", "component", "makes", "cached", "why", "key", "folder" and "estimate"
    (calls, memory, parameters; None if nothing is estimated). Raises `Problems` with every mistake of the recipe.
    """
    planned = pipeline.plan(load_recipe(source, override_texts(overrides, seed)), Path(runs), limit=limit)
    with libraries_quiet():
        estimates = pipeline.estimates(planned, limit)
    rows = [
        {
            "stage": stage.name,
            "component": stage.component,
            "makes": stage.makes,
            "cached": stage.cached,
            "why": stage.why,
            "key": stage.key,
            "folder": str(stage.dir),
            "estimate": estimates.get(stage.name),
        }
        for stage in planned.stages
    ]
    return pandas.DataFrame(rows)


@dataclass(frozen=True)
class ValidRecipe:
    """A recipe without mistakes."""

    source: str
    stages: list[str] = field(default_factory=list)
    """Stages in order of execution; empty as long as `needs` is not."""
    needs: list[str] = field(default_factory=list)
    """Variables that must be set before it can run (`vars.sft`)."""

    def __str__(self) -> str:
        if self.needs:
            return f"{self.source}: ok, but it needs values for {', '.join(self.needs)}"
        return f"{self.source}: ok, {quantity(len(self.stages), 'stage')}: {', '.join(self.stages)}"

    __repr__ = __str__


def validate(source: Path | str, overrides: Overrides | None = None, *, seed: int | None = None) -> ValidRecipe:
    """Check a recipe: names, types, bounds, references, files. Raises `Problems` with every mistake; nothing is run."""
    try:
        loaded = load_recipe(source, override_texts(overrides, seed))
    except Problems as problems:
        if not problems.needs:
            raise
        return ValidRecipe(str(source), needs=problems.needs)
    return ValidRecipe(loaded.address, list(loaded.stages))


def _command(address: str, texts: Sequence[str], runs: Path, limit: int | None) -> list[str]:
    """Return the equivalent command line, for the records of the run."""
    where = [] if runs == Path(RUNS) else ["--runs", str(runs)]
    return ["fgrl", "run", address, *texts, *where, *([] if limit is None else ["--limit", str(limit)])]


def _check_processes(loaded: recipe.Recipe) -> None:
    """Raise `UsageError` if a stage with several processes uses a component that only this process knows."""
    for name, stage in loaded.stages.items():
        if stage.processes() < 2:
            continue
        parts = [stage, *(value for _, value in registry.walk(stage))]
        own = [type(part) for part in parts if outside.is_defined_outside(type(part))]
        if own:
            raise UsageError(
                f"stage {name} runs in separate processes, which do not know {own[0].__qualname__}: put the component into a file, "
                "and name the file under `imports` of the recipe"
            )
