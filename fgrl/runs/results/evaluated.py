"""Numbers of a run's evaluations, each with the number of the model before its training."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fgrl.measuring.answer import Answer
from fgrl.measuring.number_names import METRICS, NumberName
from fgrl.measuring.statistics import Estimate, difference, value_of
from fgrl.measuring.symptoms import COST, SYMPTOMS
from fgrl.runs.reading import mapping, read_records
from fgrl.runs.results.conclusions import Example, Status
from fgrl.runs.results.estimates import ShownEstimate
from fgrl.runs.results.evaluations import ANSWERS, Evaluation, Known, read_evaluation
from fgrl.runs.results.numbers import Measure, ModelNumber
from fgrl.runs.results.trainings import TrainedModel, Trainings
from fgrl.runs.stage import Stage
from fgrl.types.meanings import Better, Purpose

RESAMPLES = 1000
"""Number of bootstrap samples for symptoms: enough for the two digits that are shown."""


@dataclass(frozen=True)
class Moved:
    """Number of a trained model, and its change by the training."""

    of: Evaluated
    name: NumberName
    known: Known | None
    model: TrainedModel
    after: ShownEstimate
    start: str = ""
    """Model before its training, if its number is known."""
    before: ShownEstimate | None = None
    change: ShownEstimate | None = None
    """Difference paired by prompt; for a number that is itself a comparison, its distance from the value for equal
    models. None if it is unknown.
    """

    @property
    def words(self) -> str:
        return str(self.name) if self.known is None else self.known.meaning.words

    @property
    def better(self) -> Better | None:
        """Return the better side; None if neither is better, or if nothing is declared."""
        return None if self.known is None else self.known.meaning.better

    @property
    def purpose(self) -> Purpose | None:
        """Return what its metric measures; a reward if a training used it; None if nothing is declared."""
        own = None if self.known is None else self.known.purpose
        return "reward" if self.name.metric in self.of.trained_on else own

    @property
    def is_reward_itself(self) -> bool:
        """Return True for the reward on held-out prompts, but not for numbers that grade the reward."""
        return self.purpose == "reward" and not self.of.grades_reward

    @property
    def status(self) -> Status:
        """Return whether it changed for the better, for the worse, or not clearly."""
        if self.change is None or self.change.changed is None or self.better is None:
            return "unknown"
        if not self.change.changed:
            return "unsure"
        return "good" if ((self.change.mean or 0.0) > 0) == (self.better == "higher") else "bad"

    @property
    def difference(self) -> str:
        """Return the change as text."""
        assert self.change is not None
        interval = f"interval {self.change.interval}" if self.change.interval else "without an interval"
        return f"difference {self.change.change}, {interval}"

    @property
    def text(self) -> str:
        side, after = f"{self.better} is better", self.after
        if self.change is not None and self.before is not None:
            values = f"{self.before.value} ({self.start}) → {after.value} ({self.model.name})"
            shown = f"{values}; {self.difference}; {side}"
        else:
            shown = f"{after.with_interval} ({self.model.name}; {side})"
            if self.change is None:
                why = self.before and self.of.evaluation.why_not_observed(self.name.metric)
                shown += f"; {why or 'what the training began with has no number to compare it with'}"
        return f"{self.words[:1].upper()}{self.words[1:]} [{self.of.label}]: {shown}"


@dataclass(frozen=True)
class Symptoms:
    """Symptoms of reward hacking in the answers of a trained model."""

    of: Evaluated
    start: str
    model: str
    numbers: Mapping[str, tuple[float, float, Estimate]]
    """Values before and after training, and the paired difference, by name."""

    def example(self) -> Example | None:
        """Return the answers before and after training to one prompt: the prompt whose answer has the median length."""
        texts: dict[str, dict[str, Answer]] = {self.start: {}, self.model: {}}
        for file in self.of.answers:
            for answer in read_records(file, Answer, [], self.of.stage.name) if file.exists() else ():
                texts.setdefault(answer.model, {}).setdefault(answer.id, answer)
        both = [(texts[self.start].get(name), after) for name, after in texts[self.model].items()]
        pairs = [(before, after) for before, after in both if before is not None]
        pairs.sort(key=lambda pair: len(pair[1].text))
        return Example.of(*pairs[len(pairs) // 2]) if pairs else None


@dataclass(frozen=True)
class Evaluated:
    """Numbers of one stage."""

    stage: Stage
    evaluation: Evaluation
    answers: list[Path]
    """Files of the models' answers, which may not exist."""
    trained: list[TrainedModel]
    settings: Mapping[str, Any]
    """Settings of the evaluation."""
    trained_on: Collection[str]
    """Names of the metrics that are functions of a training's reward."""
    set_of_training: str = ""
    """Name of the set of prompts, for an evaluation during training."""

    @property
    def label(self) -> str:
        return f"{self.stage.name}, while training" if self.set_of_training else self.stage.name

    @property
    def metrics_key(self) -> str:
        """Return the key of the recipe under which its metrics are named."""
        return f"stages.{self.stage.name}{self.set_of_training and f'.evaluate.sets.{self.set_of_training}'}.metrics"

    @property
    def is_earlier(self) -> bool:
        """Return True if it is from a version of fgrl that did not store the symptoms of answers."""
        return any(map(Path.exists, self.answers)) and SYMPTOMS not in self.evaluation.observed.metrics

    @property
    def grades_reward(self) -> bool:
        return self.stage.component == "grade"

    def starts(self, model: TrainedModel) -> list[str]:
        """Return the names of the models from which the training of a model began, the baseline first. If the recipe
        does not tell, this is the baseline, unless the baseline is given as answers and the model is not.
        """
        given, baseline = mapping(self.settings.get("given")), self.evaluation.baseline
        is_start = (baseline not in given or model.name in given) if model.starts is None else baseline in model.starts
        return [*([baseline] if is_start else []), *(model.starts or ())]

    @cached_property
    def moved(self) -> list[Moved]:
        """Return the numbers of the trained models, in the order of the metrics."""
        trained = {model.name: model for model in self.trained}
        return [
            self._moved(measure, row, trained[row.model])
            for measure in self.evaluation.measures
            for row in measure.models
            if row.model in trained and row.value.mean is not None
        ]

    def _moved(self, measure: Measure, row: ModelNumber, model: TrainedModel) -> Moved:
        known, baseline = self.evaluation.known(measure.name), self.evaluation.baseline
        even = None if known is None else known.meaning.even
        alone = Moved(self, measure.name, known, model, row.value)
        to_baseline = self.grades_reward or baseline in self.starts(model)
        if to_baseline and row.difference is not None and row.difference.mean is not None:
            own = measure[baseline]
            return replace(alone, start=baseline, before=None if own is None else own.value, change=row.difference)
        opponent = self._opponent(measure.name.metric)
        for start in [opponent] if self.grades_reward else model.starts or ():
            if even is not None and start == opponent:
                return replace(alone, change=_from_even(row.value, even))
            if (own := measure[start]) is not None:
                return replace(alone, start=start, before=own.value, change=self._paired(alone, start))
        return alone

    def _paired(self, after: Moved, start: str) -> ShownEstimate | None:
        """Return the difference to a model other than the baseline, from the observations of both."""
        sides = [self.evaluation.measured(after.name, model) for model in (after.model.name, start)]
        if sides[0] is None or sides[1] is None:
            return None
        options = self.evaluation.observed.metrics[after.name.metric].options
        change = difference(sides[0], sides[1], **options)
        return None if change.mean is None else ShownEstimate.of(change, after.after.decimals)

    def _opponent(self, metric: str) -> str:
        """Return the model with which a metric compares the others."""
        listed = self.settings.get("metrics")
        for node in map(mapping, listed if isinstance(listed, list) else []):
            if metric in (node.get("title"), node.get("name")) and node.get("versus"):
                return str(node["versus"])
        return self.evaluation.baseline

    def goals(self) -> list[Moved]:
        """Return the first number of every trained model that measures the goal of a training, preferably one that can
        be compared. The reward on held-out prompts counts only for models without another number that can be compared.
        """
        first: dict[tuple[bool, str], Moved] = {}
        for own in sorted(self.moved, key=lambda moved: moved.change is None):
            if own.known is None or own.better is None or own.purpose == "symptom":
                continue
            if own.is_reward_itself and own.known.meaning.even is not None:
                continue  # not what answers are worth, but how well the reward judges them
            first.setdefault((own.purpose == "reward", own.model.name), own)
        goals = {model: own for (of_reward, model), own in first.items() if not of_reward}
        rewards = {model: own for (of_reward, model), own in first.items() if of_reward}
        compared = {model for model, own in goals.items() if own.change is not None}
        more = [own for model, own in rewards.items() if model not in (goals if own.change is None else compared)]
        return [*goals.values(), *more]

    def symptoms(self, model: TrainedModel) -> Symptoms | None:
        """Return the observed symptoms of a model; None if none were observed."""
        observed = self.evaluation.observed.metrics.get(SYMPTOMS)
        numbers = {} if observed is None else observed.numbers
        start = next((name for name in self.starts(model) if name in numbers), None)
        if start is None or model.name not in numbers:
            return None
        pairs = [(name, numbers[start][name], after) for name, after in numbers[model.name].items()]
        found = [(name, value_of(a), value_of(b), difference(b, a, resamples=RESAMPLES)) for name, a, b in pairs]
        for measure in reversed(self.evaluation.measures):
            own, other = measure[start], measure[model.name]
            if measure.name.number == COST and own is not None and other is not None:
                found.append((COST, own.value.mean, other.value.mean, Estimate(mean=None)))
        known = {name: (a, b, change) for name, a, b, change in found if a is not None and b is not None}
        return Symptoms(self, start, model.name, known)


def _from_even(value: ShownEstimate, even: float) -> ShownEstimate:
    """Return the difference between a number and its value for equal models."""
    moved = {end: None if (at := getattr(value, end)) is None else at - even for end in ("mean", "low", "high")}
    return value.model_copy(update=moved)


def evaluations_of(stage: Stage, trainings: Trainings) -> Iterator[Evaluated]:
    """Yield the measurements of a stage: of an evaluation, or of a training at its last evaluation."""
    if stage.folder is None:
        return
    if (stage.out / METRICS).exists():
        evaluation, settings = read_evaluation(stage.out, []), stage.settings
        graded = {**mapping(settings.get("right")), **mapping(settings.get("relevance"))}
        names = [name for name in evaluation.models if not graded or name in graded]
        trained = trainings.trained_models(mapping(settings.get("models")), names, evaluation.baseline)
        trained_on = trainings.rewarding(settings.get("metrics"))
        yield Evaluated(stage, evaluation, [stage.out / ANSWERS], trained, settings, trained_on)
    every = stage.folder / "evaluations"
    steps = [int(each.name) for each in every.iterdir() if each.name.isdigit()] if every.is_dir() else []
    sets = mapping(mapping(stage.settings.get("evaluate")).get("sets"))
    for folder in sorted((every / str(last)).iterdir()) if (last := max(steps, default=0)) else ():
        if folder.is_dir():
            evaluation, settings = read_evaluation(folder, []), mapping(sets.get(folder.name))
            names = [name for name in evaluation.models if name != evaluation.baseline]
            trained = [TrainedModel(name, stage.name, None, (evaluation.baseline,)) for name in names]
            files = [every / "0" / folder.name / ANSWERS, folder / ANSWERS]  # of the start, and of the trained model
            trained_on = trainings.rewarding(settings.get("metrics"))
            yield Evaluated(stage, evaluation, files, trained, settings, trained_on, folder.name)
