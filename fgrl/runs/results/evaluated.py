"""The numbers of a run's evaluations, each beside that of the model before its training."""

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
"""Draws of the bootstrap of symptoms: enough for the two digits that are shown."""


@dataclass(frozen=True)
class Moved:
    """A number of a trained model, and what the training made of it."""

    of: Evaluated
    name: NumberName
    known: Known | None
    model: TrainedModel
    after: ShownEstimate
    start: str = ""
    """The model before its training, where the number of that is known."""
    before: ShownEstimate | None = None
    change: ShownEstimate | None = None
    """The difference, paired by prompt; or the distance of a number that compares by itself from its value for equal
    models. None: it is not known.
    """

    @property
    def words(self) -> str:
        return str(self.name) if self.known is None else self.known.meaning.words

    @property
    def better(self) -> Better | None:
        """The better side; None: neither, or nothing is declared."""
        return None if self.known is None else self.known.meaning.better

    @property
    def purpose(self) -> Purpose | None:
        """What its metric measures, and a reward where a training used it; None: nothing is declared."""
        own = None if self.known is None else self.known.purpose
        return "reward" if self.name.metric in self.of.trained_on else own

    @property
    def is_reward_itself(self) -> bool:
        """True for the reward on held-out prompts, and not for what it is graded by."""
        return self.purpose == "reward" and not self.of.grades_reward

    @property
    def status(self) -> Status:
        """Whether it changed for the better, for the worse, or not clearly."""
        if self.change is None or self.change.changed is None or self.better is None:
            return "unknown"
        if not self.change.changed:
            return "unsure"
        return "good" if ((self.change.mean or 0.0) > 0) == (self.better == "higher") else "bad"

    @property
    def difference(self) -> str:
        """The change as text."""
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
    """By name: the values before and after training, and the paired difference."""

    def example(self) -> Example | None:
        """Return the answers before and after training to one prompt: that of the middle answer by its length."""
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
    """The numbers of one stage."""

    stage: Stage
    evaluation: Evaluation
    answers: list[Path]
    """Files of their answers, which may not exist."""
    trained: list[TrainedModel]
    settings: Mapping[str, Any]
    """Those of the evaluation."""
    trained_on: Collection[str]
    """Names of the metrics that are functions of a reward."""
    set_of_training: str = ""
    """Its name, of an evaluation while training."""

    @property
    def label(self) -> str:
        return f"{self.stage.name}, while training" if self.set_of_training else self.stage.name

    @property
    def metrics_key(self) -> str:
        """The key of the recipe under which its metrics are named."""
        return f"stages.{self.stage.name}{self.set_of_training and f'.evaluate.sets.{self.set_of_training}'}.metrics"

    @property
    def is_earlier(self) -> bool:
        """True if it is of a version of fgrl that did not store the symptoms of answers."""
        return any(map(Path.exists, self.answers)) and SYMPTOMS not in self.evaluation.observed.metrics

    @property
    def grades_reward(self) -> bool:
        return self.stage.component == "grade"

    def starts(self, model: TrainedModel) -> list[str]:
        """Return the names of what the model was before its training, the baseline first. Where the recipe does not
        say, the baseline is that, unless it is answers of others, and the model's own answers are not given, too.
        """
        given, baseline = mapping(self.settings.get("given")), self.evaluation.baseline
        is_start = (baseline not in given or model.name in given) if model.starts is None else baseline in model.starts
        return [*([baseline] if is_start else []), *(model.starts or ())]

    @cached_property
    def moved(self) -> list[Moved]:
        """The numbers of the trained models, in the order of the metrics."""
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
        """Return the difference to a model other than the baseline, from what was observed of both."""
        sides = [self.evaluation.measured(after.name, model) for model in (after.model.name, start)]
        if sides[0] is None or sides[1] is None:
            return None
        options = self.evaluation.observed.metrics[after.name.metric].options
        change = difference(sides[0], sides[1], **options)
        return None if change.mean is None else ShownEstimate.of(change, after.after.decimals)

    def _opponent(self, metric: str) -> str:
        """Return the model that a metric compares the others with by itself."""
        listed = self.settings.get("metrics")
        for node in map(mapping, listed if isinstance(listed, list) else []):
            if metric in (node.get("title"), node.get("name")) and node.get("versus"):
                return str(node["versus"])
        return self.evaluation.baseline

    def goals(self) -> list[Moved]:
        """Return of every trained model the first number that a training is for; one that can be compared, where there
        is one. The reward on held-out prompts counts for models without another number that can be compared.
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
        """Return the symptoms of a model that were observed; None where none were."""
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
    """Return the distance of a number from its value for equal models."""
    moved = {end: None if (at := getattr(value, end)) is None else at - even for end in ("mean", "low", "high")}
    return value.model_copy(update=moved)


def evaluations_of(stage: Stage, trainings: Trainings) -> Iterator[Evaluated]:
    """Return the measurements of a stage: of an evaluation, or of a training at its last evaluation."""
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
