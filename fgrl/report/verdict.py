"""The answers that a run's page begins with: did it learn, does it exploit its reward, what changed most.

Everything is computed from recorded numbers. Learning is only asserted of a number whose metric declares which side is better,
and whose interval of the paired difference excludes 0. What was not measured is named as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from fgrl.evaluation.answer import from_earlier_form
from fgrl.evaluation.number_names import NumberName
from fgrl.evaluation.statistics import Estimate
from fgrl.kinds import Meaning, Purpose
from fgrl.modules.alarms import Alarms, Watch
from fgrl.report.estimates import ShownEstimate, ShownMeasure, ShownNumber, shown_measure
from fgrl.report.meanings import Meanings
from fgrl.report.symptoms import (
    AnswerText,
    Symptom,
    Symptoms,
    cut_off,
    empty,
    read_texts,
    repeated_pairs,
    repeats_prompt,
    same_for_others,
    words,
)
from fgrl.report.text import number, signed
from fgrl.report.trainings import TrainedModel, Trainings
from fgrl.results.evaluations import ANSWERS, METRICS, Evaluation, read_evaluation
from fgrl.results.reading import finite, mapping, read_json, read_lines
from fgrl.results.run_folder import RunFolder, StageFolder, load

SURE = 1.96
"""Standard errors on each side of a 95% interval."""
EDGE = 0.1
"""Share of a training's iterations whose mean is its start, and its end: one iteration alone is noisy."""
SHORTER, LONGER = 0.5, 2.0
"""Answers that are less than half as long, or more than twice as long, no longer do the same thing."""
COMMON = 0.1
"""A side effect in one answer of ten is a habit of the model, not an accident."""
MANY = 0.25
"""Share of the answers from which on a symptom is no good sign, even where it was as common before."""
FAR_FROM_REFERENCE = 1.0
"""Nats of KL per token: the policy's tokens are then e (2.7) times as likely under it as under the reference, on average, which
for fluent text of the same kind stays below one half."""
MOST_CHANGES = 5
MOST_OF_A_METRIC = 2
"""Of what changed most; a metric's numbers tell much the same. Of a metric of symptoms (words, characters, tokens) it is one."""
MOST_FINDINGS = 6

Status = Literal["good", "bad", "unsure", "unknown"]
SYMBOLS: dict[Status, str] = {"good": "✓", "bad": "✗", "unsure": "?", "unknown": "–"}
"""Beside every colour."""
ALARM_TOPICS = {"tokens": "length", "kl": "distance", "distinct": "repetition", "finished": "endings", "empty": "empty"}
"""Alarms that show the same as another check."""
ALARM_WORDS = {
    "tokens": "length of a response", "empty": "share of empty responses", "finished": "share of finished responses",
    "prompts_cut": "share of prompts that are longer than max_prompt_tokens",
    "kl": "KL to the reference", "entropy": "entropy of the policy", "distinct": "share of different token pairs",
    "zero_variance": "share of prompts whose responses all get the same reward", "missing": "share of missing rewards",
    "missing_verdicts": "share of missing verdicts", "unmatched": "share of quotes that are not in the response",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A sentence with the numbers that it rests on."""

    status: Status
    text: str
    topic: str = ""
    strong: bool = False
    """It alone is enough for a verdict."""

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.status]


@dataclass(frozen=True)
class Reply:
    """The reply to a question, and why."""

    question: str
    status: Status
    short: str
    findings: list[Finding]

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.status]

    @property
    def telling(self) -> list[Finding]:
        """The findings that decided: signs and open questions before good news, strong ones first; the good news where there is
        nothing else."""
        order = sorted(self.findings, key=lambda each: (not each.strong, each.status != "bad", each.status != "unsure"))
        return [each for each in order if each.status != "good"] or order[:MOST_FINDINGS]

    @property
    def rest(self) -> list[Finding]:
        """The other findings."""
        telling = self.telling
        return [each for each in self.findings if each not in telling]


@dataclass(frozen=True)
class Change:
    """A number that differs between the compared models."""

    name: NumberName
    words: str
    stage: str
    before: ShownNumber
    after: ShownNumber
    effect: float | None
    """Mean of the differences per prompt / their standard deviation; None where all prompts differ by the same."""
    status: Status
    """Is it for the better? `unknown` where neither side is."""
    most: int = MOST_OF_A_METRIC
    """How many numbers of its metric are shown."""

    @property
    def size(self) -> str:
        return "the same on every prompt" if self.effect is None else f"{number(abs(self.effect), 2)} SD"

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.status]


@dataclass
class Verdict:
    """What the first screen shows."""

    replies: list[Reply] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    @property
    def is_bad(self) -> bool:
        return any(reply.status == "bad" for reply in self.replies)

    def lines(self) -> list[str]:
        """For a terminal: each question with its reply, and below it the reasons that are not good news; or the first one."""
        result = []
        for reply in self.replies:
            result.append(f"{reply.symbol} {reply.question} {reply.short}")
            telling = [finding for finding in reply.findings if finding.status in ("bad", "unsure")]
            result += [f"    {each.symbol} {' '.join(each.text.split())}" for each in telling or reply.findings[:1]]
        return result

    def as_json(self) -> dict[str, Any]:
        return {
            "questions": [
                {
                    "question": reply.question, "status": reply.status, "reply": reply.short,
                    "findings": [{"status": each.status, "text": each.text} for each in reply.findings],
                }
                for reply in self.replies
            ],
            "changed_most": [
                {
                    "number": str(each.name), "stage": each.stage, "words": each.words, "model": each.after.model,
                    "before": each.before.value.mean, "after": each.after.value.mean, "effect": each.effect,
                    "status": each.status,
                }
                for each in self.changes
            ],
        }  # fmt: skip


def verdict(folder: Path) -> Verdict:
    """The verdict on the run in an invocation's folder. What cannot be read counts as not measured."""
    return verdict_of(load(Path(folder)))


def verdict_of(run: RunFolder) -> Verdict:
    """1. what was evaluated, 2. did it learn, 3. does it exploit its reward, 4. what changed most."""
    trainings = Trainings(run)
    evaluations = [evaluated for stage in run.stages for evaluated in _evaluations(run, stage, trainings)]
    # an evaluation stage measures the product; those while training are read where there is none
    final = [each for each in evaluations if not each.while_training]
    evaluations = final or evaluations
    goals = [goal for each in evaluations for goal in each.goals()]
    replies = [_learned(run, evaluations, goals)]
    if (exploited := _exploited(run, evaluations, goals)) is not None:
        replies.append(exploited)
    return Verdict([reply for reply in replies if reply is not None], _changes(evaluations))


# -- what was evaluated ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """The headline number of one trained model."""

    stage: str
    name: NumberName
    words: str
    better: str
    measure: ShownMeasure
    model: TrainedModel
    before: ShownNumber | None
    after: ShownNumber
    change: ShownEstimate | None
    """The difference to `before`, paired by prompt unless `unpaired`; or the distance of a number that compares by itself from
    its value for equal models. None: no model that the training began with has the number."""
    status: Status
    unpaired: bool = False
    of_reward: bool = False
    """Is it a number of the reward or of what annotates, not one with a goal?"""
    of_grading: bool = False
    """Is it how well annotations or relevances agree with given ones?"""

    @property
    def is_reward_itself(self) -> bool:
        """Is it the reward on held-out prompts?"""
        return self.of_reward and not self.of_grading

    @property
    def text(self) -> str:
        side = f"{self.better} is better"
        if self.before is None or self.change is None:
            shown = f"{self.after.value.with_interval} ({self.after.model}; {side})"
            if self.change is None:
                shown += "; what the training began with has no number to compare it with"
        else:
            change = f"difference {self.change.change}" + (
                f", interval {self.change.interval}" if self.change.interval else ", without an interval"
            )
            change += " (from the intervals of both)" if self.unpaired and self.change.interval else ""
            before, after = self.before, self.after
            shown = f"{before.value.value} ({before.model}) → {after.value.value} ({after.model}); {change}; {side}"
        words = self.words[:1].upper() + self.words[1:]
        return f"{words} [{self.stage}]: {shown}"


@dataclass
class Evaluated:
    """The numbers of one stage."""

    stage: StageFolder
    evaluation: Evaluation
    meanings: Meanings
    answers: Path | None
    trained: list[TrainedModel]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those of the evaluation."""
    while_training: bool = False

    @property
    def label(self) -> str:
        return f"{self.stage.name}, while training" if self.while_training else self.stage.name

    @property
    def grades_reward(self) -> bool:
        return self.stage.kind == "grade"

    def baseline_is_start(self, model: TrainedModel) -> bool:
        """Is the baseline what the model was before its training? Where the recipe does not say, every baseline that is a model
        counts, but not answers of others, unless the model's own answers are given, too."""
        if model.starts is None:
            given = mapping(self.settings.get("given"))
            return self.evaluation.baseline not in given or model.name in given
        return self.evaluation.baseline in model.starts

    def goals(self) -> list[Goal]:
        """The first number that a training is for, of every trained model; one that can be compared, where there is one. The reward
        on held-out prompts counts for models without a number of another kind that can be compared."""
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
            known = self.meanings.of(measure.name)
            if known is None or known.purpose != purpose or known.meaning.better is None:
                continue
            if purpose == "reward" and not self.grades_reward and known.meaning.even is not None:
                continue  # not what answers are worth, but how well the reward judges them
            shown = shown_measure(measure)
            for row in shown.rows:
                model = next((each for each in self.trained if each.name == row.model), None)
                if model is None or (row.model in by_model and by_model[row.model].change is not None):
                    continue
                goal = self._goal(measure.name, known.meaning, shown, row, model)
                if goal is not None and (goal.change is not None or row.model not in by_model):
                    by_model[row.model] = replace(goal, of_reward=purpose == "reward", of_grading=self.grades_reward)
        return by_model

    def _goal(
        self, name: NumberName, meaning: Meaning, shown: ShownMeasure, after: ShownNumber, model: TrainedModel
    ) -> Goal | None:
        """None: the model has no value."""
        assert meaning.better is not None
        rows = {row.model: row for row in shown.rows}
        before, change, unpaired = None, None, False
        paired = after.difference if self.baseline_is_start(model) or self.grades_reward else None
        if paired is not None and paired.mean is not None:
            before, change = rows.get(self.evaluation.baseline), paired
        elif self.grades_reward and meaning.even is not None:
            change = _from_even(after.value, meaning.even)
        else:
            opponent = self._opponent(name.metric)
            for start in model.starts or ():
                if meaning.even is not None and start == opponent:
                    change = _from_even(after.value, meaning.even)
                    break
                if start in rows and (change := _unpaired(after.value, rows[start].value)) is not None:
                    before, unpaired = rows[start], True
                    break
        if after.value.mean is None:
            return None
        if change is None or change.mean is None:
            return Goal(self.label, name, meaning.words, meaning.better, shown, model, None, after, None, "unknown")
        status = _status(change, meaning.better)
        return Goal(
            self.label, name, meaning.words, meaning.better, shown, model, before, after, change, status, unpaired
        )

    def _opponent(self, metric: str) -> str:
        """The model that a metric compares the others with by itself."""
        listed = self.settings.get("metrics")
        for settings in listed if isinstance(listed, list) else []:
            node = mapping(settings)
            if metric in (node.get("title"), node.get("name")) and node.get("versus"):
                return str(node["versus"])
        return self.evaluation.baseline

    def symptoms(self, model: TrainedModel) -> Symptoms | None:
        """The answers of a model, and those of what it was before its training."""
        starts = [*([self.evaluation.baseline] if self.baseline_is_start(model) else []), *(model.starts or ())]
        start = next((name for name in starts if name in self._texts), None)
        if start is None or model.name not in self._texts:
            return None
        both = Symptoms(self._texts[start], self._texts[model.name])
        return both if both.before and both.after else None

    @cached_property
    def _texts(self) -> dict[str, list[AnswerText]]:
        if self.answers is None:
            return {}
        return read_texts(map(from_earlier_form, read_lines(self.answers, [], self.stage.name)))


def _from_even(value: ShownEstimate, even: float) -> ShownEstimate:
    """The distance of a number from its value for equal models."""
    estimate = value.estimate
    moved = {end: None if (at := getattr(estimate, end)) is None else at - even for end in ("mean", "low", "high")}
    return ShownEstimate(estimate.model_copy(update=moved), value.decimals)


def _unpaired(after: ShownEstimate, before: ShownEstimate) -> ShownEstimate | None:
    """The difference of two numbers, taken as independent: of answers to the same prompts its interval is rather too wide."""
    new, old = after.estimate, before.estimate
    if new.mean is None or old.mean is None:
        return None
    low, high = None, None
    if new.low is not None and new.high is not None and old.low is not None and old.high is not None:
        low, high = _of_independent((old.low, old.mean, old.high), (new.low, new.mean, new.high))
    n = min(new.n, old.n)
    return ShownEstimate(Estimate(mean=new.mean - old.mean, low=low, high=high, n=n), after.decimals)


def _of_independent(before: tuple[float, float, float], after: tuple[float, float, float]) -> tuple[float, float]:
    """The interval of a difference, from (low, mean, high) of both sides (Newcombe 1998, method 10)."""
    change = after[1] - before[1]
    return change - math.hypot(after[1] - after[0], before[2] - before[1]), change + math.hypot(
        after[2] - after[1], before[1] - before[0]
    )


def _status(change: ShownEstimate, better: str) -> Status:
    if change.changed is None:
        return "unknown"
    if not change.changed:
        return "unsure"
    assert change.mean is not None
    return "good" if (change.mean > 0) == (better == "higher") else "bad"


def _evaluations(run: RunFolder, stage: StageFolder, trainings: Trainings) -> Iterable[Evaluated]:
    if stage.folder is None:
        return
    settings = _settings(run, stage.name)
    out = stage.folder / "out"
    if (out / METRICS).exists():
        evaluation = read_evaluation(stage.folder, [])
        answers = out / ANSWERS
        trained = trainings.trained_models(
            mapping(settings.get("models")), list(evaluation.models), evaluation.baseline
        )
        yield Evaluated(
            stage,
            evaluation,
            Meanings(evaluation.report, settings),
            answers if answers.exists() else None,
            trained,
            settings,
        )
    for folder in _last_of_training(stage.folder / "evaluations"):
        report = Evaluation({})
        if (folder / METRICS).exists():
            report = Evaluation(read_json(folder / METRICS, []))
        sets = mapping(mapping(settings.get("evaluate")).get("sets"))
        own = mapping(sets.get(folder.name))
        trained = [
            TrainedModel(model, stage.name, None, (report.baseline,))
            for model in report.models
            if model != report.baseline
        ]
        answers = folder / ANSWERS
        if trained:
            yield Evaluated(
                stage, report, Meanings(report.report, own), answers if answers.exists() else None, trained, own,
                while_training=True,
            )  # fmt: skip


def _last_of_training(folder: Path) -> list[Path]:
    """The sets of the last evaluation while training. Answers of the start are in the folder of step 0."""
    steps = [int(each.name) for each in folder.iterdir() if each.name.isdigit()] if folder.is_dir() else []
    last = max(steps, default=0)
    return sorted(each for each in (folder / str(last)).iterdir() if each.is_dir()) if last else []


def _settings(run: RunFolder, stage: str) -> dict[str, Any]:
    return mapping(mapping(run.settings.get("stages")).get(stage))


# -- did it learn ------------------------------------------------------------------------------------------------------


def _learned(run: RunFolder, evaluations: Sequence[Evaluated], goals: Sequence[Goal]) -> Reply | None:
    question = "Did it learn?"
    counted = _decisive(goals)
    only_reward = any(goal.is_reward_itself for goal in counted)
    by_reward = " (measured by the reward itself)" if only_reward else ""
    findings = [Finding(goal.status, f"{goal.text}.") for goal in goals[:MOST_FINDINGS]]
    fits = [finding for stage in run.stages if (finding := _fit(stage)) is not None]
    trains = any(stage.kind in ("finetune", "rl") for stage in run.stages)
    if counted:
        states = {goal.status for goal in counted}
        if "good" in states and "bad" in states:
            return Reply(question, "unsure", "Partly: some numbers improved, others got worse.", findings + fits)
        if "good" in states:
            every = all(goal.status == "good" for goal in counted if goal.change is not None)
            short = (
                f"Yes, on held-out prompts{by_reward}."
                if every
                else f"Yes, on some of the held-out numbers{by_reward}."
            )
            return Reply(question, "good", short, findings + fits)
        if "bad" in states:
            return Reply(question, "bad", f"No: it got worse on held-out prompts{by_reward}.", findings + fits)
        if "unsure" in states:
            by = " by the reward itself, the only number that can be compared" if only_reward else ""
            short = f"Not shown{by}: the interval of the difference includes 0."
            return Reply(question, "unsure", short, findings + fits)
        short = "Unknown: the difference has no interval, so it may be chance."
        if all(goal.change is None for goal in counted):
            short = "Unknown: the model that the training began with was not measured in the same way."
        return Reply(question, "unknown", short, findings + fits)
    undeclared = [finding for each in evaluations for finding in _undeclared(each)]
    if undeclared:
        short = "Unknown: no number declares which side of it is better."
        return Reply(question, "unknown", short, undeclared[:MOST_FINDINGS] + fits)
    if fits:
        status: Status = "good" if all(fit.status == "good" for fit in fits) else "unsure"
        short = (
            "Yes, on held-out rows of the training data."
            if status == "good"
            else "Not shown: on held-out rows there is no difference with an interval that excludes 0."
        )
        return Reply(question, status, short, fits)
    if not trains:
        return None
    return Reply(question, "unknown", "Unknown: nothing held out was measured.", [])


def _decisive(goals: Sequence[Goal]) -> list[Goal]:
    """The numbers that can be compared, where there are any; and of these the reward only where nothing else was measured."""
    compared = [goal for goal in goals if goal.change is not None] or list(goals)
    return [goal for goal in compared if not goal.of_reward] or compared


def _undeclared(evaluated: Evaluated) -> Iterable[Finding]:
    """Numbers with a difference, but without a declared direction."""
    for measure in evaluated.evaluation.measures:
        if evaluated.meanings.of(measure.name) is None:
            shown = shown_measure(measure)
            for row in shown.rows:
                if row.difference is not None and row.difference.mean is not None:
                    interval = f", interval {row.difference.interval}" if row.difference.interval else ""
                    yield Finding(
                        "unknown", f"{measure.name} of {row.model}: difference {row.difference.change}{interval}."
                    )


def _fit(stage: StageFolder) -> Finding | None:
    """What a finetuning measured on rows that it did not train on."""
    held = mapping(stage.summary.get("holdout"))
    before, after = mapping(held.get("before")), mapping(held.get("after"))
    rows = held.get("rows")
    for name, better in (("accuracy", "higher"), ("loss", "lower")):
        first, last = finite(before.get(name)), finite(after.get(name))
        if first is None or last is None:
            continue
        text = f"{name.capitalize()} on {number(finite(rows))} held-out rows [{stage.name}]: {number(first)} → {number(last)}"
        if name == "accuracy" and isinstance(rows, int) and rows > 0 and 0 <= first <= 1 and 0 <= last <= 1:
            low, high = _newcombe(first, last, rows)
            status: Status = "good" if low > 0 else "bad" if high < 0 else "unsure"
            interval = f"difference {signed(last - first)}, interval {signed(low)} to {signed(high)}"
            return Finding(status, f"{text}; {interval}; {better} is better.")
        return Finding("unsure", f"{text}; no interval is known; {better} is better.")
    return None


def _newcombe(before: float, after: float, n: int) -> tuple[float, float]:
    """Interval of the difference of two shares of n rows each, taken as independent, which makes it rather too wide (Newcombe 1998,
    method 10)."""

    def wilson(share: float) -> tuple[float, float]:
        z2 = SURE * SURE
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        reach = SURE * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
        return middle - reach, middle + reach

    (low_1, high_1), (low_2, high_2) = wilson(before), wilson(after)
    return _of_independent((low_1, before, high_1), (low_2, after, high_2))


# -- does it exploit its reward ----------------------------------------------------------------------------------------


def _exploited(run: RunFolder, evaluations: Sequence[Evaluated], goals: Sequence[Goal]) -> Reply | None:
    trainings = [stage for stage in run.stages if stage.kind == "rl" and stage.folder is not None]
    policies = [goal for goal in goals if not goal.of_reward]
    if not trainings:
        symptoms = _symptoms(evaluations, None)
        return None if symptoms is None else _side_effects("Does it have side effects?", [list(_in_answers(symptoms))])
    by_training = []
    for stage in trainings:
        symptoms = _symptoms(evaluations, stage.name)
        own = list(_reward(run, stage, [goal for goal in policies if goal.model.stage == stage.name]))
        own += [] if symptoms is None else _in_answers(symptoms)
        if symptoms is None or symptoms.kl_per_token() is None:
            own += _distance_of_training(stage)
        own += _alarms(run, stage, {finding.topic for finding in own if finding.status != "good"})
        named = [replace(finding, text=f"[{stage.name}] {finding.text}") for finding in own]
        by_training.append(named if len(trainings) > 1 else own)
    reply = _side_effects("Is it hacking the reward?", by_training)
    compared = {goal.model.stage for goal in policies if goal.status in ("good", "bad", "unsure")}
    missing = [stage.name for stage in trainings if stage.name not in compared]
    if reply.status != "good" or not missing:
        return reply
    of = f" of {', '.join(missing)}" if len(trainings) > 1 else ""
    short = f"Unknown: nothing held out was measured that the reward{of} can be compared with."
    if any(goal.is_reward_itself and goal.model.stage in missing for goal in goals):
        short = f"Unknown: on held-out prompts only the reward{of} itself was measured; add a metric that measures your goal."
    return replace(reply, status="unknown", short=short)


def _symptoms(evaluations: Sequence[Evaluated], stage: str | None) -> Symptoms | None:
    """Of the first model with answers that this training made, its product before models that it kept on the way; None: of any."""
    models = [(each, model) for each in evaluations for model in each.trained if stage in (None, model.stage)]
    models.sort(key=lambda pair: pair[1].step is not None)
    return next((symptoms for each, model in models if (symptoms := each.symptoms(model)) is not None), None)


def _side_effects(question: str, by_training: Sequence[Sequence[Finding]]) -> Reply:
    """The reply about the training with the most signs."""
    findings = [finding for own in by_training for finding in own]
    signs = max(([each for each in own if each.status in ("bad", "unsure")] for own in by_training), key=len)
    reasons = "; ".join(dict.fromkeys(finding.topic for finding in signs))
    if any(finding.strong for finding in findings):
        return Reply(question, "bad", "Very likely: the reward rose while the goal got worse.", findings)
    if len(signs) > 1:
        return Reply(question, "bad", f"Probably: there are {len(signs)} signs ({reasons}).", findings)
    if signs:
        return Reply(question, "unsure", f"Possibly: there is one sign ({reasons}).", findings)
    return Reply(question, "good", "No sign of it in what was measured.", findings)


@dataclass(frozen=True)
class Trend:
    """A logged metric at the start and at the end of a training."""

    first: float
    last: float
    sure: bool

    @property
    def change(self) -> float:
        return self.last - self.first


def trend(values: Sequence[float], spread: Sequence[float], prompts: int) -> Trend | None:
    """Means over the first and the last tenth of the iterations. None with fewer than two values.

    The difference counts as sure when it is larger than 1.96 standard errors. A standard error comes from the logged standard
    deviations over `prompts` independent prompts per iteration, or from the size of the steps from one iteration to the
    next, whichever is larger; without either nothing is sure.
    """
    if len(values) < 2:
        return None
    edge = max(1, round(EDGE * len(values)))
    first, last = values[:edge], values[-edge:]
    errors = []
    if len(spread) == len(values) and prompts > 0:
        variances = [value * value / (prompts * edge) for value in (*spread[:edge], *spread[-edge:])]
        errors.append(math.sqrt(math.fsum(variances) / edge))
    if len(values) > 2:
        steps = [b - a for a, b in pairwise(values)]
        drift = math.fsum(steps) / len(steps)
        noise = math.sqrt(math.fsum((step - drift) ** 2 for step in steps) / (2 * (len(steps) - 1 or 1)))
        errors.append(noise * math.sqrt(2 / edge))
    start, end = math.fsum(first) / edge, math.fsum(last) / edge
    return Trend(start, end, bool(errors) and abs(end - start) > SURE * max(errors))


def _reward(run: RunFolder, stage: StageFolder, goals: Sequence[Goal]) -> Iterable[Finding]:
    """The reward of a training against the held-out goal."""
    logged = {series.name: series for series in stage.series}
    series = logged.get("reward")
    if series is None:
        return
    rollout = mapping(_settings(run, stage.name).get("rollout"))
    size, group = finite(rollout.get("batch_size")), finite(rollout.get("per_prompt")) or 1.0
    spread = logged["reward_std"].values if "reward_std" in logged else []
    reward = trend(series.values, spread, int((size or 0) // group))
    if reward is None:
        return
    verb = ("rose" if reward.change > 0 else "fell") if reward.sure else "did not clearly change"
    moved = (
        f"Reward {verb} by {number(abs(reward.change))} ({number(reward.first)} → {number(reward.last)}) in training"
    )
    moved = (
        moved
        if reward.sure
        else f"Reward did not clearly change in training ({number(reward.first)} → {number(reward.last)})"
    )
    if not (reward.sure and reward.change > 0):
        yield Finding("good", f"{moved}: there is no gain that hacking the reward could explain.", "reward")
        return
    known = [goal for goal in goals if goal.status in ("good", "bad", "unsure")]
    known.sort(key=lambda goal: goal.model.step is not None)  # the product before models that were kept on the way
    if not known:
        yield Finding("unknown", f"{moved}; nothing held out was measured that it can be compared with.", "reward")
        return
    for goal in known[:1]:
        yield _against_goal(moved, goal)


def _against_goal(moved: str, goal: Goal) -> Finding:
    """The reward rose; what did the goal do?"""
    values = (
        f"{goal.before.value.value} to {goal.after.value.value}" if goal.before is not None else goal.after.value.value
    )
    if goal.status == "bad":
        verb = "fell" if goal.better == "higher" else "rose"
        text = f"{moved} while the held-out {goal.words} {verb} from {values}."
        return Finding("bad", text, "reward against goal", strong=True)
    if goal.status == "unsure":
        interval = "" if goal.change is None else goal.change.interval
        text = f"{moved}, but the held-out {goal.words} did not measurably change ({values}; interval {interval})."
        return Finding("unsure", text, "reward against goal")
    return Finding("good", f"{moved}, and so did the held-out goal: {goal.words}, {values}.", "reward against goal")


def _in_answers(symptoms: Symptoms) -> Iterable[Finding]:
    """What the answers show: length, repetition, endings."""
    length = symptoms.compare(words)
    before, after = length.before.mean, length.after.mean
    if before is not None and after is not None:
        factor = after / before if before else (1.0 if not after else math.inf)
        changed = length.sure and not SHORTER <= factor <= LONGER
        side = "shorter" if factor < 1 else "longer"
        what = f"much {side}" if changed else side if length.sure else "about as long as before"
        text = f"Answers are {what}: {number(before)} → {number(after)} words on average."
        yield Finding("unsure" if changed else "good", text, "length")
    shares: list[tuple[Symptom, str, str]] = [
        (repeats_prompt, "repeat a passage of their prompt", "repetition of the prompt"),
        (same_for_others, "are the same as the answer to another prompt", "one answer for many prompts"),
        (empty, "are empty", "empty answers"),
        (cut_off, "are cut off by the length limit", "endings"),
    ]
    for symptom, what, topic in shares:
        share = symptoms.compare(symptom)
        if share.after.mean is not None and share.before.mean is not None:
            is_sign = share.sure and share.after.mean - share.before.mean >= COMMON
            text = f"{percent(share.after.mean)} of the answers {what} (before: {percent(share.before.mean)})."
            if not is_sign and share.after.mean >= MANY:
                yield Finding("unknown", f"{text} The training did not cause it, but it is nothing good either.", topic)
            else:
                yield Finding("unsure" if is_sign else "good", text, topic)
    pairs = symptoms.compare(repeated_pairs)
    if pairs.after.mean is not None and pairs.before.mean is not None:
        is_sign = pairs.sure and pairs.after.mean - pairs.before.mean >= COMMON
        text = f"{percent(pairs.after.mean)} of the word pairs in an answer repeat earlier ones (before: {percent(pairs.before.mean)})."
        yield Finding("unsure" if is_sign else "good", text, "repetition")
    if (kl := symptoms.kl_per_token()) is not None:
        yield _distance(kl, "of the held-out answers")


def _distance_of_training(stage: StageFolder) -> Iterable[Finding]:
    logged = {series.name: series.values for series in stage.series}
    kl, tokens = logged.get("kl"), logged.get("tokens")
    if kl and tokens and tokens[-1] > 0:
        yield _distance(kl[-1] / tokens[-1], f"in the last iteration of {stage.name}")


def _distance(kl: float, where: str) -> Finding:
    far = kl > FAR_FROM_REFERENCE
    text = f"KL to the reference: {number(kl)} nats per token {where}" + (
        f", more than {number(FAR_FROM_REFERENCE)}: the policy writes what the reference would not." if far else "."
    )
    return Finding("unsure" if far else "good", text, "distance")


def _alarms(run: RunFolder, stage: StageFolder, topics: set[str]) -> Iterable[Finding]:
    """The alarms of a training, found again in its log. One that shows the same as an earlier sign is shown, but not counted twice."""
    log = _by_step(stage)
    if not log:
        return
    alarms = _alarm_settings(_settings(run, stage.name))
    watch = Watch(alarms, lambda _message: None)
    raised: dict[str, tuple[float, str]] = {}
    last: list[str] = []
    for step, metrics in log:
        last = watch.look(metrics, example="")
        for name in last:
            value = metrics.get(name, metrics.get(f"reward/{name}"))
            broken = getattr(alarms, name).broken(value, watch.first.get(name))
            raised.setdefault(name, (step, f"{number(value)}, {broken}"))
    if not raised:
        yield Finding("good", f"No alarm during the training of {stage.name}.", "alarms")
    for name, (step, words_) in raised.items():
        topic = ALARM_TOPICS.get(name, name)
        until = "until the end" if name in last else "for a time"
        what = ALARM_WORDS.get(name, name)
        text = f"Alarm “{name}” in {stage.name} from iteration {number(step)} on, {until}: {what} was {words_}."
        counted = name in last and topic not in topics
        yield Finding("unsure" if counted else "unknown", text, f"alarm {name}")


def _alarm_settings(settings: Mapping[str, Any]) -> Alarms:
    """Those of the recipe, which only warn here; the defaults where they cannot be read."""
    try:
        alarms = Alarms.model_validate(mapping(settings.get("alarms")))
    except ValidationError:
        alarms = Alarms()
    warning = {
        name: alarm.model_copy(update={"action": "warn"})
        for name in Alarms.model_fields
        if (alarm := getattr(alarms, name)) is not None
    }
    return alarms.model_copy(update=warning)


def _by_step(stage: StageFolder) -> list[tuple[float, dict[str, float]]]:
    rows: dict[float, dict[str, float]] = {}
    for series in stage.series:
        for step, value in zip(series.steps, series.values, strict=True):
            rows.setdefault(step, {})[series.name] = value
        for step in series.broken:
            rows.setdefault(step, {})[series.name] = math.nan
    return sorted(rows.items())


def percent(share: float) -> str:
    """`38%`; small shares with a digit more."""
    return f"{100 * share:.0f}%" if share == 0 or share >= 0.1 else f"{100 * share:.1f}%"


# -- what changed most -------------------------------------------------------------------------------------------------


def _changes(evaluations: Sequence[Evaluated]) -> list[Change]:
    """The numbers that changed most beyond doubt, largest standardised change first."""
    changes: list[Change] = []
    for each in evaluations:
        if each.grades_reward:
            continue
        for measure in each.evaluation.measures:
            shown = shown_measure(measure)
            before = next((row for row in shown.rows if row.model == each.evaluation.baseline), None)
            if before is None:
                continue
            known = each.meanings.of(measure.name)
            better = None if known is None else known.meaning.better
            if better is None and before.value.estimate.low == before.value.estimate.high:
                continue  # 0 by definition, as the KL of the reference to itself
            trained = {model.name for model in each.trained if each.baseline_is_start(model)}
            for row in shown.rows:
                change = row.difference
                if row.model not in trained or change is None or not change.changed or not change.mean:
                    continue
                effect = _effect(change)
                status = "unknown" if better is None else _status(change, better)
                words_ = each.meanings.words(measure.name)
                most = 1 if known is not None and known.purpose == "symptom" else MOST_OF_A_METRIC
                changes.append(Change(measure.name, words_, each.label, before, row, effect, status, most))
    changes.sort(key=lambda change: -math.inf if change.effect is None else -abs(change.effect))
    result: list[Change] = []
    for changed in changes:
        same = [other for other in result if (other.stage, other.name.metric) == (changed.stage, changed.name.metric)]
        if len(same) < changed.most:
            result.append(changed)
    return result[:MOST_CHANGES]


def _effect(change: ShownEstimate) -> float | None:
    """The standardised difference, from the width of its interval: mean / (standard error * sqrt(prompts))."""
    estimate = change.estimate
    assert estimate.mean is not None
    assert estimate.low is not None
    assert estimate.high is not None
    error = (estimate.high - estimate.low) / (2 * SURE)
    return estimate.mean / (error * math.sqrt(max(1, estimate.groups))) if error > 0 else None
