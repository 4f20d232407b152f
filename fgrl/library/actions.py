"""Functions for the commands other than runs and numbers: a first recipe, samples, export of models, pages, cleaning,
checks, the catalogue.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from fgrl import registry
from fgrl.base import files, lazy
from fgrl.base.console import Console, listening
from fgrl.base.errors import UsageError
from fgrl.exchange.publishing.exported import Exported
from fgrl.experiments import recipe
from fgrl.experiments.pipeline.planning import Plan, Planned
from fgrl.experiments.pipeline.trial import Finding
from fgrl.kinds import Inspectable
from fgrl.library import words
from fgrl.library.inputs import RUNS, Overrides, libraries_quiet, load_recipe, override_texts
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.runs.cleaning import Deletions
from fgrl.runs.folders import Runs
from fgrl.runs.results.conclusions import Conclusions

cleaning = lazy.load("fgrl.runs.cleaning")
concluding = lazy.load("fgrl.runs.results.concluding")
exporting = lazy.load("fgrl.exchange.publishing.exporting")
machine = lazy.load("fgrl.experiments.pipeline.machine")
pages = lazy.load("fgrl.pages.report")
pipeline = lazy.load("fgrl.experiments.pipeline")
provenance = lazy.load("fgrl.exchange.publishing.provenance")
pushing = lazy.load("fgrl.exchange.publishing.pushing")
rates = lazy.load("fgrl.experiments.pipeline.rates")
ranking = lazy.load("fgrl_benchmark.commands")
schemas = lazy.load("fgrl.experiments.recipe.schema")
shipped = lazy.load("fgrl.experiments.recipe.shipped")
stage_run = lazy.load("fgrl.experiments.pipeline.run")
starting = lazy.load("fgrl.exchange.starting")
sweep_page = lazy.load("fgrl.pages.report.sweep_page")
terminal = lazy.load("fgrl.pages.report.terminal")
trial = lazy.load("fgrl.experiments.pipeline.trial")
verification = lazy.load("fgrl.experiments.pipeline.verification")


@dataclass
class NewRecipe:
    """A first recipe, and the files that were written with it."""

    recipe: Path
    stages: list[str]
    assumptions: list[str]
    """Findings and assumptions, one sentence each."""
    placeholders: list[Path] = field(default_factory=list)
    """Files with a placeholder reward or a placeholder goal."""
    prompts: list[Path] = field(default_factory=list)
    """Prompt files that the recipe names."""
    shows_rows: bool = False
    """True if `fgrl.inspect` shows rows before any stage has run."""

    @property
    def files(self) -> list[Path]:
        """All files that were written."""
        return [self.recipe, *self.placeholders, *self.prompts]


def init(
    kind: str | None, data: Path | str, model: str, output: Path | str = "recipe.yaml", *,
    columns: Mapping[str, str] | None = None, force: bool = False, **options: Any,
) -> NewRecipe:  # fmt: skip
    """Write a first recipe for rows and a model, with its assumptions as comments; `fgrl init --help` lists the kinds.

    kind: None chooses it from the columns of the rows, `reward` and `tools`. columns: columns by role that need no
    guess. force: overwrite an existing recipe. options: `reward`, `tools` (a list), `system`, `chat_template`, `gpu`,
    `max_prompt_tokens`, `max_tokens` and `max_new_tokens`, as in `fgrl init`. Raises `UsageError` for a wrong request,
    `DataError` for rows that do not fit.
    """
    path, chosen = Path(output), ""
    if kind is None:
        given = {name: bool(options.get(name)) for name in ("reward", "tools")}
        kind, chosen = starting.choose(Path(data), columns or {}, **given)
    if kind not in starting.KINDS:
        raise UsageError(registry.unknown("kind", kind, starting.KINDS))
    if options.get("reward") is not None and kind not in starting.REWARDED:
        raise UsageError(f"--reward goes with {', '.join(starting.REWARDED)}; {kind} learns from the rows alone")
    if bool(options.get("tools")) != (kind == "agent"):
        raise UsageError(
            "--tools FILE.py:FUNCTION,... names what an agent may call: it goes with agent, which needs it"
        )
    if files.exists(path) and not force:
        raise UsageError(
            f"{path} is already there; nothing was written (another --out, or --force, which overwrites it)"
        )
    if not files.is_folder(path.parent):
        raise UsageError(f"--out {path}: no such folder: {path.parent}")
    recipe.know_components()
    request = starting.Request(kind, Path(data), model, path, columns=dict(columns or {}), chosen=chosen, **options)
    with libraries_quiet():
        draft = starting.draft(request)
    prompts = [path.parent / name for name in draft.prompts if not files.exists(path.parent / name)]
    texts = {path: draft.text, **draft.files, **{file: shipped.prompt(file.name) for file in prompts}}
    for file, text in texts.items():
        files.write_text(file, text)
    made = recipe.load(path)
    first = [stage for name, stage in made.stages.items() if not made.graph()[name]]
    shows = any(isinstance(stage, Inspectable) for stage in first)
    return NewRecipe(path, list(made.stages), draft.assumptions, list(draft.files), prompts, shows)


@dataclass
class Inspected:
    """Samples of a stage, as the model sees them."""

    stage: str
    samples: list[MarkedTokens] = field(default_factory=list)

    def draw(self) -> None:
        """Print them, as `fgrl inspect` does."""
        terminal.print_tokens(self.samples)


def inspect(
    source: Path | str | recipe.Recipe, overrides: Overrides | Sequence[str] | None = None, *,
    stage: str | None = None, count: int = 3, runs: Path | str = RUNS, limit: int | None = None,
    progress: bool = True, show: Callable[[MarkedTokens], None] | None = None,
) -> Inspected:  # fmt: skip
    """Return a few samples of a stage as the model sees them: tokens, masks, segments, rewards. Nothing is trained or
    kept.

    stage: by default the first that shows samples. show: function that is called with each sample as soon as it is
    ready. Raises `UsageError` for a stage that shows no samples, or that needs stages which have not run.
    """
    console = Console(quiet=not progress)
    with listening(console):
        console.enter("loading")
        loaded = source if isinstance(source, recipe.Recipe) else load_recipe(source, override_texts(overrides))
        plan = pipeline.plan(loaded, Path(runs), limit=limit)
        chosen = _inspectable(plan, stage)
        found = Inspected(chosen.name)
        with stage_run.scratch_run(chosen.name, **plan.surroundings(chosen), console=console, limit=limit) as run:
            run.cache.mkdir(parents=True, exist_ok=True)
            console.say(f"{plan.name}: stage {chosen.name} ({chosen.component}): loading")
            run.seed_libraries()
            own: Any = chosen.stage
            for sample, _ in zip(own.inspect(run, count), range(count), strict=False):
                found.samples.append(sample)
                if show is not None:
                    show(sample)
    return found


def _inspectable(plan: Plan, name: str | None) -> Planned:
    able = [stage for stage in plan.stages if isinstance(stage.stage, Inspectable)]
    if name is None:
        if not able:
            raise UsageError("no stage of this recipe shows samples")
        name = next((stage.name for stage in able if not _missing(plan, stage)), able[0].name)
    if name not in [stage.name for stage in plan.stages]:
        raise UsageError(registry.unknown("stage", name, [stage.name for stage in plan.stages]))
    if plan[name] not in able:
        raise UsageError(f"stage {name} has no samples to show; these have: {', '.join(stage.name for stage in able)}")
    if missing := _missing(plan, plan[name]):
        commands = " ".join(f"--only {upstream}" for upstream in missing)
        raise UsageError(f"stage {name} needs {', '.join(missing)} first: fgrl run {plan.recipe.address} {commands}")
    return plan[name]


def _missing(plan: Plan, stage: Planned) -> list[str]:
    return [name for name in stage.upstream if not plan[name].cached]


def export(
    source: Path | str, folder: Path | str, overrides: Overrides | Sequence[str] | None = None, *,
    stage: str | None = None, push: str | None = None, public: bool = False, force: bool = False,
    runs: Path | str = RUNS, progress: bool = True, **options: Any,
) -> Exported:  # fmt: skip
    """Write a trained model as a folder that loads without fgrl: weights, tokenizer, model card.

    source: a recipe, a run, one of their stages (`RUN:STAGE`), or a stage, by its name or folder. push: upload it to
    this repository of the Hugging Face hub, which is private unless `public`. force: replace an earlier export.
    options: `merge`, `dtype`, `base` and `license`, as in `fgrl export`.
    """
    if public and push is None:
        raise UsageError("--public goes with --push")
    console, place = Console(quiet=not progress), Path(folder)
    exporting.check_target(place, force=force)
    model = words.model(str(source), Path(runs), override_texts(overrides), stage)
    api = None if push is None else pushing.check(push, public=public)
    console.say(f"exporting {model.name}" + (f" of step {model.step}" if model.step is not None else ""))
    history = provenance.read(model.place, step=model.step, about=model.about)
    chosen = exporting.Options(force=force, name=push and push.rpartition("/")[2], **options)
    with libraries_quiet():
        exported: Exported = exporting.export(model.model, place, history, chosen, console.say)
    console.say(f"{exported.form} ({exported.dtype}), loads with {exported.loads}: {exported.check.in_words()}")
    if push is None:
        return exported
    console.say(f"uploading to {push} ({'public' if public else 'private'})")
    message = f"{model.name} ({history.stage.key})" if history.stage else model.name
    return replace(exported, pushed=pushing.push(place, push, public=public, api=api, message=f"Export of {message}"))


@dataclass
class WrittenReport:
    """A page that was written for a run or a sweep."""

    report: Path
    folder: Path
    conclusions: Conclusions | None = None
    """Conclusions on its first screen; None for a sweep."""


def report(
    source: Path | str, overrides: Overrides | Sequence[str] | None = None, *, seeds: Sequence[int] = (),
    runs: Path | str = RUNS,
) -> list[WrittenReport]:  # fmt: skip
    """Write pages again: of a recipe's newest run (with each of `seeds`), of one or several runs, or of a sweep. Raises
    `UsageError` if nothing has run.
    """
    place = Path(source)
    if (place / "sweep.json").is_file():
        return [WrittenReport(sweep_page.write(place), place)]
    folders = words.newest_runs(place, Path(runs), override_texts(overrides), seeds)
    concluded = [concluding.renew(folder) for folder in folders]
    return [WrittenReport(pages.write(folder), folder, own) for folder, own in zip(folders, concluded, strict=True)]


def clean(
    runs: Path | str = RUNS, *, older_than: timedelta | str | None = None, recipes: Sequence[str] = (),
    unreferenced: bool = False, checkpoints: bool = False, delete: bool | Callable[[Deletions], bool] = False,
) -> Deletions:  # fmt: skip
    """Return the folders that `fgrl clean` with these options deletes. They are deleted if `delete` is True, or a
    function that returns True.

    older_than: a time, or a text as `30d`, `12h`, `8w`. Raises `UsageError` if nothing is selected.
    """
    age = cleaning.parse_age(older_than) if isinstance(older_than, str) else older_than
    if age is None and not (recipes or unreferenced or checkpoints):
        raise UsageError(
            "nothing was selected: give --older-than, --recipe, --unreferenced or --checkpoints (`fgrl runs` lists the runs)"
        )
    folder = Runs(Path(runs))
    chosen: Deletions = cleaning.deletions(folder, cleaning.Wanted(age, list(recipes), unreferenced, checkpoints))
    if delete(chosen) if callable(delete) else delete:
        chosen.freed = cleaning.delete(folder, chosen, chosen.problems.append)
    return chosen


def check(
    file: Path | str, overrides: Overrides | Sequence[str] | None = None, *, name: str | None = None,
    show: Callable[[str, Finding], None] | None = None,
) -> dict[str, list[Finding]]:  # fmt: skip
    """Train a small random model with each reward, algorithm, environment and engine of a Python file, in different
    ways. Return by component whether the weights are equal. Environments get scripted texts, and engines are asked in
    several ways.

    overrides: of the trial's recipe. show: function that is called with each finding as soon as it is ready. Raises
    `UsageError` for a file without such components, and the error of a training that fails.
    """
    tried = {registry.name_of(cls)[1]: cls for cls in trial.tried_components(Path(file))}
    if name is not None and name not in tried:
        raise UsageError(registry.unknown("component", name, sorted(tried)))
    found: dict[str, list[Finding]] = {}
    silent = Console(quiet=True, stream=io.StringIO())  # the error of a training is raised, too
    for called in tried if name is None else [name]:
        with tempfile.TemporaryDirectory(prefix="fgrl-check-") as folder:
            written = trial.write_recipe(tried[called], Path(file), Path(folder))
            for finding in trial.findings(tried[called], written, override_texts(overrides), silent):
                found.setdefault(called, []).append(finding)
                if show is not None:
                    show(called, finding)
    return found


def benchmark(
    method: Path | str, overrides: Overrides | Sequence[str] | None = None, *, name: str | None = None, told: str = "outcome",
    knob: str = "", turns: bool = False, again: bool = False, runs: Path | str = RUNS, jobs: int = 1, progress: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Rank a method of your own in the credit benchmark. Return its place, its costs and the files that were written
    beside it, as `fgrl benchmark --json` prints them.

    method: a Python file or a recipe. told, knob, turns, name, again: see `fgrl benchmark --help`. jobs: number of runs
    at the same time, each in a separate process. Raises `UsageError`, `Problems`, and the error of a run that fails.
    """
    place = ranking.rank(
        str(method), name=name, told=told, knob=knob, turns=turns, overrides=override_texts(overrides), again=again,
        runs=str(runs), jobs=jobs, console=Console(quiet=not progress),
    )  # fmt: skip
    found: dict[str, Any] = ranking.summary(place)
    return found


def doctor(
    check: Path | str | None = None, *, runs: Path | str = RUNS, measure: Path | str | None = None
) -> dict[str, Any]:
    """Return the features of this machine and what it lacks ("problems"). check: compare the products in this folder of
    runs with their checksums instead. measure: measure the rates of this machine instead, and write them into this file
    as a card, which a file of `machines` may extend.
    """
    if measure is not None:
        card = rates.measure()
        Path(measure).write_text(yaml.safe_dump({"card": card}, sort_keys=False), encoding="utf-8")
        return {"card": card, "problems": []}
    examined: dict[str, Any] = machine.examine(Path(runs)) if check is None else verification.verify(Runs(Path(check)))
    return examined


def catalog(kind: str | None = None) -> dict[str, list[dict[str, str]]]:
    """Return the components of each kind, or of one kind: their names and summaries."""
    recipe.know_components()
    found = {}
    for each in registry.kinds() if kind is None else [kind]:
        found[each] = [{"name": name, "about": registry.about(each, name)} for name in registry.names(each)]
    return found


def describe(kind: str, name: str) -> dict[str, Any]:
    """Return everything about a component: its fields with type, default, bounds and help. Raises `NotRegistered`."""
    recipe.know_components()
    return registry.describe(kind, name)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe, for editors."""
    recipe.know_components()
    found: dict[str, Any] = schemas.schema()
    return found
