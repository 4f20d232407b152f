"""Runs on disk: `fgrl.open_run`, and the result of `fgrl.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fgrl.base import lazy
from fgrl.base.console import duration
from fgrl.base.errors import UsageError
from fgrl.base.visible import visible
from fgrl.experiments.pipeline.log import read_log
from fgrl.library import numbers, words
from fgrl.pages.report.text_tables import columns
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import unknown
from fgrl.runs.results.evaluations import ANSWERS
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage

if TYPE_CHECKING:
    from pandas import DataFrame

    from fgrl.library.policies import Policy
    from fgrl.library.scored_texts import ScoredText
    from fgrl.types import Message, Sample
pandas = lazy.load("pandas")
answer_files = lazy.load("fgrl.measuring.answer")
policies = lazy.load("fgrl.library.policies")
scored_texts = lazy.load("fgrl.library.scored_texts")
scoring = lazy.load("fgrl.library.scoring")


class FinishedStage(Stage):
    """A stage of a run."""

    def log(self) -> DataFrame:
        """Return the numbers that the stage logged, one row per step; empty for a stage that logs nothing."""
        return pandas.DataFrame([] if self.folder is None else read_log(self.folder / "log.jsonl"))


class FinishedRun(Run):
    """A run of a recipe: its stages, folders and numbers. The run may also have failed, or may still be running."""

    _stages_are = FinishedStage
    stages: dict[str, FinishedStage]  # type: ignore[assignment]

    @property
    def report(self) -> Path | None:
        """Page of the run, `report.html`; None if it does not exist yet."""
        page = self.folder / "report.html"
        return page if page.is_file() else None

    def stage(self, name: str) -> FinishedStage:
        """Return a stage by its name. Raises `UsageError` with the nearest name if there is no such stage."""
        if name not in self.stages:
            raise UsageError(unknown("stage", name, list(self.stages)))
        return self.stages[name]

    def numbers(self, *wanted: str) -> DataFrame:
        """Return the numbers of the run's finished evaluations, with intervals; see `fgrl.table`."""
        return numbers.table(self, wanted=wanted)

    def answers(
        self, stage: str | None = None, model: str | None = None, *, reward: str | None = None
    ) -> list[ScoredText]:
        """Return the answers that an evaluation recorded, with the token rewards of the evaluation's reward, ready to
        be drawn.

        stage: by default the only finished stage that recorded answers. model: by default all models. reward: by
        default the first of the evaluation's `rewards`; without rewards the answers have none. Raises `UsageError` for
        a name that does not exist.
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

    def _lines(self) -> list[list[str]]:
        lines = [["stage", "component", "state", "time", "folder"]]
        for stage in self.stages.values():
            seconds = "" if stage.seconds is None else duration(stage.seconds)
            place = "" if stage.folder is None else stage.folder.name
            lines.append([visible(text) for text in (stage.name, stage.component, stage.state, seconds, place)])
        return lines

    def _title(self) -> str:
        return visible(f"{self.name}: {self.state}" + (f" ({self.error})" if self.error else ""))

    def __repr__(self) -> str:
        lines = [self._title(), columns(self._lines(), indent=""), f"folder: {nearby(self.folder)}"]
        return "\n".join([*lines, *([f"report: {nearby(self.report)}"] if self.report is not None else [])])

    def _repr_html_(self) -> str:
        title = Markup("<p><b>{}</b></p>").format(self._title())
        places = Markup("<p>folder: <code>{}</code></p>").format(nearby(self.folder))
        head, *lines = self._lines()
        return str(title + Markup(pandas.DataFrame(lines, columns=head).to_html(index=False)) + places)


def open_run(folder: Path | str) -> FinishedRun:
    """Return a run by its folder, `runs/<recipe>/<time>-<key>`. For a folder with several runs, return the newest.
    Raises `UsageError` if there is no run.
    """
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder; the folder of a run is runs/<recipe>/<time>-<key>")
    newest = words.run_folders(path)[-1]
    if not (newest / "recipe.yaml").is_file() or not (newest / "stages").is_dir():
        raise UsageError(f"{path} contains no run; the folder of a run is runs/<recipe>/<time>-<key>")
    return FinishedRun(newest)
