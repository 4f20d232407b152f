"""Runs on the disk: `fgrl.open_run`, `fgrl.numbers`, and what `fgrl.run` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fgrl import lazy
from fgrl.console import duration
from fgrl.errors import UsageError
from fgrl.evaluation.statistics import Estimate
from fgrl.library.inputs import RUNS, Overrides, load_recipe, override_texts
from fgrl.library.table import Table
from fgrl.pipeline.log import read_log
from fgrl.recipe import named, words
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import unknown
from fgrl.results.evaluations import ANSWERS
from fgrl.results.number_tables import NumberTable, number_table, results_of
from fgrl.results.numbers import ModelNumber
from fgrl.runs.folders import Runs
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage
from fgrl.visible import visible

if TYPE_CHECKING:
    from fgrl.library.policies import Policy
    from fgrl.library.scored_texts import ScoredText
    from fgrl.types import Message, Sample
answer_files = lazy.load("fgrl.evaluation.answer")
policies = lazy.load("fgrl.library.policies")
scored_texts = lazy.load("fgrl.library.scored_texts")
scoring = lazy.load("fgrl.library.scoring")

NUMBER_COLUMNS = (
    "recipe", "seed", "model", "number", "mean", "low", "high", "n", "difference", "difference_low", "difference_high", "note",
)  # fmt: skip


class FinishedStage(Stage):
    """A stage of a run."""

    def log(self) -> Table:
        """Return the numbers that the stage logged, a row for each step; empty for a stage that logs none."""
        return Table([] if self.folder is None else read_log(self.folder / "log.jsonl"))


class FinishedRun(Run):
    """A run of a recipe: its stages, folders and numbers. It may also be one that failed or still runs."""

    _stages_are = FinishedStage
    stages: dict[str, FinishedStage]  # type: ignore[assignment]

    @property
    def report(self) -> Path | None:
        """The page of the run, `report.html`; None while there is none."""
        page = self.folder / "report.html"
        return page if page.is_file() else None

    def stage(self, name: str) -> FinishedStage:
        """Return a stage by its name. Raises `UsageError` with the nearest name."""
        if name not in self.stages:
            raise UsageError(unknown("stage", name, list(self.stages)))
        return self.stages[name]

    def numbers(self, *wanted: str) -> Table:
        """Return the numbers of the run's finished evaluations, with intervals; see `fgrl.numbers`."""
        return _number_rows([self], wanted)

    def answers(
        self, stage: str | None = None, model: str | None = None, *, reward: str | None = None
    ) -> list[ScoredText]:
        """Return the answers that an evaluation recorded, with the token rewards of the evaluation's reward, ready to
        be drawn.

        stage: by default the only finished one that recorded answers. model: by default all. reward: by default the
        first one of the evaluation's `rewards`; without rewards the answers have none. Raises `UsageError` for a name
        that does not exist.
        """
        recorded = [name for name, each in self.stages.items() if each.finished and (each.product / ANSWERS).is_file()]
        chosen = self._only_one(stage, recorded, "recorded answers")
        by_model = answer_files.read_answers(chosen.product / ANSWERS)
        if model is not None and model not in by_model:
            raise UsageError(unknown("model", model, list(by_model)))
        return [
            scored_texts.of_answer(answer, reward)
            for name, answers in by_model.items()
            if model in (None, name)
            for answer in answers
        ]

    def policy(self, stage: str | None = None, *, step: int | None = None, **options: Any) -> Policy:
        """Return the language model that a stage trained or chose; see `fgrl.load`. stage: by default the only one with
        a language model.
        """
        models = [name for name, each in self.stages.items() if each.finished and each.is_model and each.head == "lm"]
        chosen = self._only_one(stage, models, "a language model")
        return policies.load_model(chosen.product, step=step, **options)

    def score(
        self, stage: str, prompt: str | Sequence[Message | Mapping[str, str]] | Sample, answer: str, **options: Any
    ) -> ScoredText:
        """Score a text with the reward of one of the run's stages; see `fgrl.score`."""
        return scoring.score_text(self, stage, prompt, answer, **options)

    def _only_one(self, name: str | None, fitting: Sequence[str], what: str) -> FinishedStage:
        if name is not None:
            return self.stage(name)
        if len(fitting) != 1:
            known = f"{len(fitting)} stages have one: {', '.join(fitting)}" if fitting else "no finished stage has one"
            raise UsageError(f"name the stage with {what}; {known}")
        return self.stages[fitting[0]]

    def _rows(self) -> Table:
        return Table(
            {
                "stage": stage.name,
                "component": stage.component,
                "state": stage.state,
                "time": "" if stage.seconds is None else duration(stage.seconds),
                "folder": "" if stage.folder is None else stage.folder.name,
            }
            for stage in self.stages.values()
        )

    def _title(self) -> str:
        return visible(f"{self.name}: {self.state}" + (f" ({self.error})" if self.error else ""))

    def __repr__(self) -> str:
        lines = [self._title(), repr(self._rows()), f"folder: {nearby(self.folder)}"]
        return "\n".join([*lines, *([f"report: {nearby(self.report)}"] if self.report is not None else [])])

    def _repr_html_(self) -> str:
        title = Markup("<p><b>{}</b></p>").format(self._title())
        places = Markup("<p>folder: <code>{}</code></p>").format(nearby(self.folder))
        return str(title + Markup(self._rows()._repr_html_()) + places)


def open_run(folder: Path | str) -> FinishedRun:
    """Return a run by its folder, `runs/<recipe>/<time>-<key>`; of a folder with several runs the newest.

    Raises `UsageError` where there is no run.
    """
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder; the folder of a run is runs/<recipe>/<time>-<key>")
    newest = words.run_folders(path)[-1]
    if not (newest / "recipe.yaml").is_file() or not (newest / "stages").is_dir():
        raise UsageError(f"{path} contains no run; the folder of a run is runs/<recipe>/<time>-<key>")
    return FinishedRun(newest)


def numbers(
    sources: Path | str | FinishedRun | Iterable[Path | str | FinishedRun],
    overrides: Overrides | None = None,
    *,
    seeds: Sequence[int] = (),
    wanted: str | Sequence[str] = (),
    runs: Path | str = RUNS,
) -> Table:
    """Return the numbers of finished evaluations, a row for each recipe, model and number. Nothing is run.

    sources: one or several of: a recipe, a folder of a run or of runs, what `fgrl.run` returned. overrides, seeds: of
    the recipes, as they were run. wanted: texts of which a number's name must contain one, as in "rule.kept".

    The columns: "recipe", "seed", "model", "number", "mean" with its interval "low" to "high", "n" (how many values),
    "difference" to the baseline of the evaluation, paired by prompt, with "difference_low" and "difference_high",
    "note". None is missing.

    Raises `UsageError` for a source without runs and for a text that is in no number's name, `DataError` for numbers
    that cannot be read, `Problems` for a recipe with mistakes.
    """
    every = [sources] if isinstance(sources, Path | str | FinishedRun) else list(sources)
    texts = override_texts(overrides)
    recipes: list[Run] = []
    for source in every:
        if isinstance(source, FinishedRun):
            recipes.append(source)
        elif Path(source).is_dir():
            recipes += words.read_sources([Path(source)], Path(runs), (), list(seeds))[0].recipes
        else:
            for own in [[*texts, f"seed={seed}"] for seed in seeds] or [texts]:
                recipes.append(named.NamedRecipe(load_recipe(source, own), own, Runs(Path(runs))))
    return _number_rows(recipes, [wanted] if isinstance(wanted, str) and wanted else list(wanted))


def _number_rows(recipes: Sequence[Run], wanted: Sequence[str]) -> Table:
    results = [results_of(each) for each in recipes]
    table: NumberTable = number_table(results, list(wanted))
    rows: list[dict[str, Any]] = []
    for (name, measures), each in zip(table.items(), recipes, strict=True):
        for number, measure in measures or []:
            rows += [{"recipe": name, "seed": each.seed, "number": number, **_row(model)} for model in measure.models]
    return Table(rows, NUMBER_COLUMNS)


def _row(number: ModelNumber) -> dict[str, Any]:
    value, change = number.value, number.difference or Estimate(mean=None)
    measured = value.model_dump(include={"mean", "low", "high", "note"}) | {"n": value.n or None}
    changes = {"difference": change.mean, "difference_low": change.low, "difference_high": change.high}
    return {"model": number.model, **measured, **changes}
