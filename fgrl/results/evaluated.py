"""The numbers of a run's evaluations, and the headline number of each model that it trained."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fgrl.evaluation.answer import Answer
from fgrl.evaluation.number_names import METRICS
from fgrl.evaluation.statistics import combined
from fgrl.kinds import Meaning, Purpose
from fgrl.results.conclusions import Status
from fgrl.results.estimates import ShownEstimate
from fgrl.results.evaluations import ANSWERS, Evaluation, read_evaluation
from fgrl.results.numbers import Measure, ModelNumber
from fgrl.results.symptoms import Symptoms
from fgrl.results.trainings import TrainedModel, Trainings
from fgrl.runs.reading import mapping, read_records
from fgrl.runs.stage import Stage

SURE = 1.96
"""Standard errors on each side of a 95% interval."""


@dataclass(frozen=True)
class Goal:
    """The headline number of one trained model."""

    stage: str
    words: str
    better: str
    model: TrainedModel
    before: ModelNumber | None
    after: ModelNumber
    change: ShownEstimate | None
    """The difference to `before`, paired by prompt unless `unpaired`; or the distance of a number that compares by
    itself from its value for equal models. None: no model that the training began with has the number.
    """
    status: Status
    unpaired: bool = False
    of_reward: bool = False
    """True for a number of the reward or of what annotates, not one with a goal."""
    of_grading: bool = False
    """True for the agreement of annotations or relevances with given ones."""

    @property
    def is_reward_itself(self) -> bool:
        """True for the reward on held-out prompts."""
        return self.of_reward and not self.of_grading

    @property
    def text(self) -> str:
        side = f"{self.better} is better"
        if self.before is None or self.change is None:
            shown = f"{self.after.value.with_interval} ({self.after.model}; {side})"
            if self.change is None:
                shown += "; what the training began with has no number to compare it with"
        else:
            interval = f"interval {self.change.interval}" if self.change.interval else "without an interval"
            change = f"difference {self.change.change}, {interval}"
            change += " (from the intervals of both)" if self.unpaired and self.change.interval else ""
            before, after = self.before, self.after
            shown = f"{before.value.value} ({before.model}) → {after.value.value} ({after.model}); {change}; {side}"
        words = self.words[:1].upper() + self.words[1:]
        return f"{words} [{self.stage}]: {shown}"


@dataclass
class Evaluated:
    """The numbers of one stage."""

    stage: Stage
    evaluation: Evaluation
    answers: Path
    """File of their answers, which may not exist."""
    trained: list[TrainedModel]
    settings: Mapping[str, Any]
    """Those of the evaluation."""
    while_training: bool = False
    trained_on: Collection[str] = ()
    """Names of the metrics that are functions of a reward: their numbers are the reward, whatever they declare."""

    @property
    def label(self) -> str:
        return f"{self.stage.name}, while training" if self.while_training else self.stage.name

    @property
    def grades_reward(self) -> bool:
        return self.stage.component == "grade"

    def baseline_is_start(self, model: TrainedModel) -> bool:
        """Return True if the baseline is the model before its training. Where the recipe does not say, every baseline
        that is a model counts, but not answers of others, unless the model's own answers are given, too.
        """
        if model.starts is None:
            given = mapping(self.settings.get("given"))
            return self.evaluation.baseline not in given or model.name in given
        return self.evaluation.baseline in model.starts

    def goals(self) -> list[Goal]:
        """Return the first number that a training is for, of every trained model; one that can be compared, where there
        is one. The reward on held-out prompts counts for models without a number of another kind that can be
        compared.
        """
        if self.grades_reward:
            return list(self._numbers_for("reward").values())
        goals, rewards = self._numbers_for("goal"), self._numbers_for("reward")
        more = [
            reward
            for name, reward in rewards.items()
            if name not in goals or (goals[name].change is None and reward.change is not None)
        ]
        return [*goals.values(), *more]

    def _numbers_for(self, purpose: Purpose) -> dict[str, Goal]:
        """By model."""
        by_model: dict[str, Goal] = {}
        for measure in self.evaluation.measures:
            known = self.evaluation.known(measure.name)
            if known is None or known.meaning.better is None:
                continue
            if purpose != ("reward" if measure.name.metric in self.trained_on else known.purpose):
                continue
            if purpose == "reward" and not self.grades_reward and known.meaning.even is not None:
                continue  # not what answers are worth, but how well the reward judges them
            for row in measure.models:
                model = next((each for each in self.trained if each.name == row.model), None)
                if model is None or (row.model in by_model and by_model[row.model].change is not None):
                    continue
                goal = self._goal(measure, known.meaning, row, model)
                if goal is not None and (goal.change is not None or row.model not in by_model):
                    by_model[row.model] = replace(goal, of_reward=purpose == "reward", of_grading=self.grades_reward)
        return by_model

    def _goal(self, measure: Measure, meaning: Meaning, after: ModelNumber, model: TrainedModel) -> Goal | None:
        """None: the model has no value."""
        assert meaning.better is not None
        before, change, unpaired = None, None, False
        paired = after.difference if self.baseline_is_start(model) or self.grades_reward else None
        if paired is not None and paired.mean is not None:
            before, change = measure[self.evaluation.baseline], paired
        elif self.grades_reward and meaning.even is not None:
            change = _from_even(after.value, meaning.even)
        else:
            opponent = self._opponent(measure.name.metric)
            for start in model.starts or ():
                if meaning.even is not None and start == opponent:
                    change = _from_even(after.value, meaning.even)
                    break
                own = measure[start]
                if own is not None and (change := _unpaired(after.value, own.value)) is not None:
                    before, unpaired = own, True
                    break
        if after.value.mean is None:
            return None
        status: Status = "unknown"
        if change is None or change.mean is None:
            before, change, unpaired = None, None, False
        else:
            status = status_of(change, meaning.better)
        words, better = meaning.words, meaning.better
        return Goal(self.label, words, better, model, before, after, change, status, unpaired)

    def _opponent(self, metric: str) -> str:
        """Return the model that a metric compares the others with by itself."""
        listed = self.settings.get("metrics")
        for settings in listed if isinstance(listed, list) else []:
            node = mapping(settings)
            if metric in (node.get("title"), node.get("name")) and node.get("versus"):
                return str(node["versus"])
        return self.evaluation.baseline

    def symptoms(self, model: TrainedModel) -> Symptoms | None:
        """Return the answers of a model, and those of what it was before its training."""
        starts = [*([self.evaluation.baseline] if self.baseline_is_start(model) else []), *(model.starts or ())]
        start = next((name for name in starts if name in self._texts), None)
        if start is None or model.name not in self._texts:
            return None
        measured = next((each for each in self.evaluation.measures if each.name.number == "nats_per_token"), None)
        sides = [] if measured is None else [measured[name] for name in (start, model.name)]
        nats = [side.value.mean for side in sides if side is not None and side.value.mean is not None]
        both = Symptoms(self._texts[start], self._texts[model.name], (nats[0], nats[1]) if len(nats) == 2 else None)
        return both if both.before and both.after else None

    @property
    def metrics_key(self) -> str:
        """The key of the recipe under which its metrics are named."""
        sets = f".evaluate.sets.{self.answers.parent.name}" if self.while_training else ""
        return f"stages.{self.stage.name}{sets}.metrics"

    @cached_property
    def _texts(self) -> dict[str, list[Answer]]:
        texts: dict[str, list[Answer]] = {}
        if self.answers.exists():
            for answer in read_records(self.answers, Answer, [], self.stage.name):
                texts.setdefault(answer.model, []).append(answer)
        return texts


def _from_even(value: ShownEstimate, even: float) -> ShownEstimate:
    """Return the distance of a number from its value for equal models."""
    moved = {end: None if (at := getattr(value, end)) is None else at - even for end in ("mean", "low", "high")}
    return value.model_copy(update=moved)


def _unpaired(new: ShownEstimate, old: ShownEstimate) -> ShownEstimate | None:
    """Return the difference of two numbers, taken as independent: of answers to the same prompts its interval is rather
    too wide.
    """
    if new.mean is None or old.mean is None:
        return None
    return ShownEstimate.of(combined([("after", 1, new), ("before", -1, old)]), new.decimals)


def status_of(change: ShownEstimate, better: str) -> Status:
    """Return whether a change is for the better, for the worse, or not clear."""
    if change.changed is None:
        return "unknown"
    if not change.changed:
        return "unsure"
    assert change.mean is not None
    return "good" if (change.mean > 0) == (better == "higher") else "bad"


def evaluations_of(stage: Stage, trainings: Trainings) -> Iterator[Evaluated]:
    """Return the measurements of a stage: of an evaluation, or of a training at its last evaluation."""
    if stage.folder is None:
        return
    out = stage.folder / "out"
    if (out / METRICS).exists():
        evaluation = read_evaluation(out, [])
        models = mapping(stage.settings.get("models"))
        graded = {**mapping(stage.settings.get("right")), **mapping(stage.settings.get("relevance"))}
        names = [name for name in evaluation.models if not graded or name in graded]
        trained = trainings.trained_models(models, names, evaluation.baseline)
        trained_on = trainings.rewarding(stage.settings.get("metrics"))
        yield Evaluated(stage, evaluation, out / ANSWERS, trained, stage.settings, trained_on=trained_on)
    sets = mapping(mapping(stage.settings.get("evaluate")).get("sets"))
    for folder in _last_of_training(stage.folder / "evaluations"):
        evaluation = read_evaluation(folder, [])
        names = [name for name in evaluation.models if name != evaluation.baseline]
        trained = [TrainedModel(name, stage.name, None, (evaluation.baseline,)) for name in names]
        if trained:
            own = mapping(sets.get(folder.name))
            trained_on = trainings.rewarding(own.get("metrics"))
            yield Evaluated(
                stage, evaluation, folder / ANSWERS, trained, own, while_training=True, trained_on=trained_on
            )


def _last_of_training(folder: Path) -> list[Path]:
    """Return the sets of the last evaluation while training. Answers of the start are in the folder of step 0."""
    steps = [int(each.name) for each in folder.iterdir() if each.name.isdigit()] if folder.is_dir() else []
    last = max(steps, default=0)
    return sorted(each for each in (folder / str(last)).iterdir() if each.is_dir()) if last else []
