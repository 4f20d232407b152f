"""Answers to two questions about a run, found by simple rules.

Did it learn? Yes, if a number that was not trained on changed for the better, and its interval excludes 0. The reward
alone is never enough for yes. Otherwise the reply says what is missing: a difference, or an interval that excludes 0.
Is it hacking the reward? A reward that rises without the goal, a symptom in the answers, and an alarm are signs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from fgrl.base import lazy
from fgrl.measuring.statistics import Estimate, combined
from fgrl.runs.reading import finite, mapping
from fgrl.runs.results import metric_names
from fgrl.runs.results.conclusions import MOST_FINDINGS, Finding, Reply, Status
from fgrl.runs.results.evaluated import Evaluated, Moved, Symptoms
from fgrl.runs.results.text import number, signed
from fgrl.runs.results.trainings import names_in
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage

np = lazy.load("numpy")

SURE = 1.96
"""Number of standard errors on each side of a 95% interval."""
BOTH_WAYS, UNCLEAR = "The reward of some models rose, that of others fell", "The reward did not clearly change"
LEARNED: dict[str, tuple[Status, str, str]] = {
    "both": ("unsure", "Partly: some numbers improved, others got worse.", BOTH_WAYS),
    "good": ("good", "Yes, on held-out prompts.", "The reward rose"),
    "bad": ("bad", "No: it got worse on held-out prompts.", "The reward fell"),
    "unsure": ("unsure", "Not shown: the interval of the difference includes 0.", UNCLEAR),
    "unknown": ("unknown", "Unknown: the difference has no interval, so it may be chance.", UNCLEAR),
}  # fmt: skip
"""Status, reply based on a number that was not trained on, and reply based on the reward, by the kind of change."""
NOT_COMPARED = "Unknown: the model that the training began with was not measured in the same way."
NOT_STORED = (
    "Lengths and repetitions are not known: an earlier version of fgrl evaluated the answers, and did not store them."
)
ADD = (
    'To learn whether the answers got better, add a number that the training did not use to "{key}" of the recipe and '
    'run it again. A Python function that scores answers: {{name: function, path: "goal.py:score", better: higher}}.'
)

EDGE = 0.1
"""Share of a training's iterations over which the start and the end are averaged, because one iteration alone is noisy."""
SHORTER, LONGER = 0.5, 2.0
"""Ratios of the lengths of answers below and above which the model is considered to do something else."""
COMMON = 0.1
"""Share of answers with a side effect from which it counts as a habit of the model, not an accident."""
MANY = 0.25
"""Share of answers with a symptom from which it is not a good sign, even if it was as common before."""
FAR_FROM_REFERENCE = 0.3
"""Nats of KL per token that count as far. Small models whose answers lost their meaning within 20 iterations were at
0.4 to 0.8, so a bound of 1 would be too late.
"""
DEARER = 0.5
"""Increase in the nats per token of answers, under an untrained model, from the model before training to the trained
model. At this bound, tokens are on average 1.6 times less likely. Answers of another style to the same prompts stay
below it; meaningless answers are 3 nats above.
"""
ABOUT_LENGTH = re.compile(
    r"(?<![a-z])(brevity|brief|concise|lengths?|long(er)?|short(er)?|terse|verbosity|word_?count|max_?words)(?![a-z])"
)
"""Words in the name of a reward, or of its file or function, that show that the reward is about length."""
SHARES = {
    "prompt": ("repetition of the prompt", "of the answers repeat a passage of their prompt"),
    "copied": ("one answer for many prompts", "of the answers are the same as the answer to another prompt"),
    "empty": ("empty answers", "of the answers are empty"),
    "finished": ("endings", "of the answers are cut off by the length limit"),
    "distinct_2": ("repetition", "of the word pairs in an answer repeat earlier ones"),
}
"""Topic and words of each share, by the name of the symptom."""
OF_REST = ("finished", "distinct_2")
"""Symptoms for which the share is 1 minus the number."""
ALARM_TOPICS = {"tokens": "length", "kl": "distance", "distinct": "repetition", "finished": "endings", "empty": "empty"}
"""Topics of checks that show the same as an alarm, by the alarm."""
OF_ENGINE = ("mismatch", "mismatch_outside", "importance_weight")
"""Alarms about the drawing engine, which do not concern the reward."""


def learned(run: Run, evaluations: Sequence[Evaluated], goals: Sequence[Moved]) -> Reply | None:
    """Return the reply to whether the models learned; None if nothing was measured."""
    fits = [finding for stage in run.stages.values() if (finding := _fit(stage)) is not None]
    undeclared = [
        _finding("unknown", f"{own.name} of {own.model.name}: {own.difference}.")
        for each in evaluations
        for own in each.moved
        if own.known is None and own.change is not None
    ][:MOST_FINDINGS]
    compared = [goal for goal in goals if goal.change is not None] or list(goals)
    counted = [goal for goal in compared if goal.purpose != "reward"] or compared
    if counted:
        states = {goal.status for goal in counted}
        change = "both" if states >= {"good", "bad"} else next(state for state in LEARNED if state in states)
        status, short, moved = LEARNED[change]
        more: list[Finding] = []
        if any(goal.is_reward_itself for goal in counted):
            compare = "can be compared" if len(goals) > len(counted) else "was measured"
            rest = "no other number declares which side of it is better" if undeclared else f"nothing else {compare}"
            status, short = ("unknown" if status == "good" else status), f"{moved}; {rest}."
            more = undeclared or [_finding("unknown", ADD.format(key=evaluations[0].metrics_key))]
        elif all(goal.change is None for goal in counted):
            short = NOT_COMPARED
        elif change == "good" and any(goal.status != "good" for goal in counted):
            short = "Yes, on some of the held-out numbers."
        shown = [
            _finding("unknown" if goal.is_reward_itself and goal.status == "good" else goal.status, f"{goal.text}.")
            for goal in goals[:MOST_FINDINGS]
        ]
        return _learned(status, short, shown + more + fits)
    if undeclared:
        return _learned("unknown", "Unknown: no number declares which side of it is better.", undeclared + fits)
    if fits and all(fit.status == "good" for fit in fits):
        return _learned("good", "Yes, on held-out rows of the training data.", fits)
    if fits:
        short = "Not shown: on held-out rows there is no difference with an interval that excludes 0."
        return _learned("unsure", short, fits)
    trains = any(stage.component in ("finetune", "rl") for stage in run.stages.values())
    return _learned("unknown", "Unknown: nothing held out was measured.", []) if trains else None


def hacked(run: Run, evaluations: Sequence[Evaluated], goals: Sequence[Moved]) -> Reply | None:
    """Return the reply to whether a policy hacks its reward; for a run that trains only on data, to whether the
    training has side effects; None if nothing is known about these.
    """
    trainings = [stage for stage in run.stages.values() if stage.component == "rl" and stage.folder is not None]
    policies = [goal for goal in goals if goal.purpose != "reward"]
    several: list[Stage | None] = [*trainings] or [None]
    by_training = [(stage, *_of_training(stage, evaluations, policies)) for stage in several]
    findings = [
        finding.model_copy(update={"text": f"[{stage.name}] {finding.text}"}) if stage and len(several) > 1 else finding
        for stage, own, _symptoms in by_training
        for finding in own
    ]
    if not trainings and not findings:
        return None
    signs = [finding for finding in findings if finding.is_sign]
    reasons = "; ".join(dict.fromkeys(finding.topic for finding in signs))
    status, short = "good", "No sign of it in what was measured."
    if any(finding.status == "bad" for finding in signs):
        status, short = "bad", "Very likely: the reward rose while the goal got worse."
    elif signs:
        one = len(signs) == 1
        status = "unsure" if one else "bad"
        short = f"{'Possibly: there is one sign' if one else f'Probably: there are {len(signs)} signs'} ({reasons})."
    compared = {goal.model.stage for goal in policies if goal.status != "unknown"}
    missing = [stage.name for stage in trainings if stage.name not in compared]
    if missing and not signs:
        reward = f"the reward of {', '.join(missing)}" if len(trainings) > 1 else "the reward"
        status, short = "unknown", f"Unknown: nothing held out was measured that {reward} can be compared with."
        if any(goal.is_reward_itself and goal.model.stage in missing for goal in goals):
            short = (
                f"Unknown: on held-out prompts only {reward} itself was measured; add a metric that measures your goal."
            )
    question = "Is it hacking the reward?" if trainings else "Does it have side effects?"
    told = (symptoms for _stage, own, symptoms in by_training if symptoms and any(each.is_sign for each in own))
    example = next((symptoms.example() for symptoms in told), None)
    return Reply(question=question, status=status, short=short, findings=findings, example=example)


def _of_training(
    stage: Stage | None, evaluations: Sequence[Evaluated], policies: Sequence[Moved]
) -> tuple[list[Finding], Symptoms | None]:
    """Return the findings on a training, and the symptoms of the answers of its models, the product before models
    stored during training. stage: a training on rewards; None: all trainings.
    """
    models = [(each, model) for each in evaluations for model in each.trained if not stage or model.stage == stage.name]
    models.sort(key=lambda pair: pair[1].step is not None)
    symptoms = next((found for each, model in models if (found := each.symptoms(model)) is not None), None)
    findings = [*_reward(stage, [goal for goal in policies if goal.model.stage == stage.name])] if stage else []
    findings += _in_answers(symptoms, stage)
    if symptoms is None and any(each.is_earlier for each, _model in models):
        findings.append(_finding("unknown", NOT_STORED))
    if stage:
        findings += _alarms(stage, {finding.topic for finding in findings if finding.status != "good"})
    return findings, symptoms


def trend(values: Sequence[float], spread: Sequence[float], prompts: int) -> tuple[float, float, bool] | None:
    """Return the means over the first and the last tenth of the iterations, and whether they certainly differ; None
    with fewer than two values.

    A difference of more than 1.96 standard errors is certain. The standard error is computed from the logged standard
    deviations over `prompts` independent prompts per iteration, or from the differences of successive iterations,
    whichever is larger; without either nothing is certain.
    """
    if len(values) < 2:
        return None
    edge, errors = max(1, round(EDGE * len(values))), []
    if len(spread) == len(values) and prompts > 0:
        errors.append(math.hypot(*spread[:edge], *spread[-edge:]) / edge / math.sqrt(prompts))
    if len(values) > 2:
        errors.append(float(np.diff(values).std(ddof=1)) / math.sqrt(edge))
    first, last = math.fsum(values[:edge]) / edge, math.fsum(values[-edge:]) / edge
    return first, last, bool(errors) and abs(last - first) > SURE * max(errors)


def _reward(stage: Stage, goals: Sequence[Moved]) -> Iterator[Finding]:
    """Yield findings on the reward of a training compared with the held-out goal."""
    logged, rollout = stage.logged, mapping(stage.settings.get("rollout"))
    size, group = finite(rollout.get("batch_size")), finite(rollout.get("per_prompt")) or 1.0
    spread = logged["reward_std"].values if "reward_std" in logged else []
    reward = trend(logged["reward"].values, spread, int((size or 0) // group)) if "reward" in logged else None
    if reward is None:
        return
    first, last, sure = reward
    ends = f"({number(first)} → {number(last)})"
    moved = f"Reward {'rose' if last > first else 'fell'} by {number(abs(last - first))} {ends} in training"
    if not sure or last <= first:
        moved = moved if sure else f"Reward did not clearly change in training {ends}"
        yield _finding("good", f"{moved}: there is no gain that hacking the reward could explain.", "reward")
        return
    known = sorted((goal for goal in goals if goal.status != "unknown"), key=lambda goal: goal.model.step is not None)
    if not known:
        yield _finding("unknown", f"{moved}; nothing held out was measured that it can be compared with.", "reward")
        return
    goal = known[0]
    values = f"{goal.before.value} to {goal.after.value}" if goal.before is not None else goal.after.value
    worse = "fell" if goal.better == "higher" else "rose"
    text = {
        "bad": f"{moved} while the held-out {goal.words} {worse} from {values}.",
        "good": f"{moved}, and so did the held-out goal: {goal.words}, {values}.",
    }
    same = f"{moved}, but the held-out {goal.words} did not measurably change ({values}; {goal.difference})."
    yield _finding(goal.status, text.get(goal.status, same), "reward against goal")


def _in_answers(symptoms: Symptoms | None, stage: Stage | None) -> Iterator[Finding]:
    """Yield findings on the answers: length, repetition, endings, likelihood. stage: the training on rewards; None: a
    training on data, which is meant to move away from its start.
    """
    numbers = {} if symptoms is None else symptoms.numbers
    if "words" in numbers:
        before, after, change = numbers["words"]
        factor = after / before if before else math.inf if after else 1.0
        changed = bool(change.changed) and not SHORTER <= factor <= LONGER
        side = "shorter" if factor < 1 else "longer"
        what = f"much {side}" if changed else side if change.changed else "about as long as before"
        names = () if stage is None else names_in(stage.settings.get("reward"))
        wanted = changed and any(ABOUT_LENGTH.search(name.rpartition("/")[2].lower()) for name in names)
        why = ", which the reward is named to be about" if wanted else ""
        text = f"Answers are {what}: {number(before)} → {number(after)} words on average{why}."
        yield _finding("unsure" if changed and not wanted else "good", text, "length")
    for name, (topic, what) in SHARES.items():
        if name not in numbers:
            continue
        before, after, change = numbers[name]
        before, after = (round(1 - share, 9) if name in OF_REST else share for share in (before, after))
        text = f"{percent(after)} {what} (before: {percent(before)})."
        if change.changed and after - before >= COMMON:
            yield _finding("unsure", text, topic)
        elif after >= MANY and topic != "repetition":
            yield _finding("unknown", f"{text} The training did not cause it, but look at them.", topic)
        else:
            yield _finding("good", text, topic)
    odd: Status = "unknown" if stage is None else "unsure"
    if "nats_per_token" in numbers:
        before, after, _change = numbers["nats_per_token"]
        dear = after - before > DEARER
        text = (
            f"Answers cost {number(after)} nats per token under a model that was not trained (before: {number(before)})"
        )
        more = f", over {DEARER:g} more: they make less sense to it." if dear else "."
        yield _finding(odd if dear else "good", text + more, "unlikely answers")
    kl, where = numbers["kl"][1] if "kl" in numbers else None, "of the held-out answers"
    if kl is None and stage is not None:
        own, tokens = (series.values if (series := stage.logged.get(name)) else [] for name in ("kl", "tokens"))
        if own and tokens and tokens[-1] > 0:
            kl, where = own[-1] / tokens[-1], f"in the last iteration of {stage.name}"
    if kl is not None:
        far = kl > FAR_FROM_REFERENCE
        more = f", more than {FAR_FROM_REFERENCE:g}: the policy writes what the reference would not." if far else "."
        text = f"KL to the reference: {number(kl)} nats per token {where}{more}"
        yield _finding(odd if far else "good", text, "distance")


def _alarms(stage: Stage, topics: set[str]) -> Iterator[Finding]:
    """Yield the alarms of a training. An alarm that shows the same as an earlier sign is shown, but not counted twice."""
    alarms = stage.alarms
    if alarms == []:
        yield _finding("good", f"No alarm during the training of {stage.name}.", "alarms")
    on = {alarm.name for alarm in alarms or () if alarm.until is None}
    firsts = {alarm.name: alarm for alarm in reversed(alarms or ())}
    for name, alarm in reversed(firsts.items()):
        value = number(math.nan if alarm.value is None else alarm.value)
        until = "until the end" if name in on else "for a time"
        text = f"Alarm “{name}” in {stage.name} from iteration {alarm.since} on, {until}: "
        text += f"{metric_names.in_words(name)} was {value}, {alarm.bound}."
        counted = name in on and ALARM_TOPICS.get(name, name) not in topics and name not in OF_ENGINE
        yield _finding("unsure" if counted else "unknown", text, f"alarm {name}")


def percent(share: float) -> str:
    """Return a percentage, `38%`; small shares have one more digit."""
    return f"{100 * share:.0f}%" if share == 0 or share >= 0.1 else f"{100 * share:.1f}%"


def _fit(stage: Stage) -> Finding | None:
    """Return a finding on the rows that a finetuning did not train on."""
    held = mapping(stage.summary.get("holdout"))
    rows = held.get("rows")
    for name, better in (("accuracy", "higher"), ("loss", "lower")):
        first, last = (finite(mapping(held.get(side)).get(name)) for side in ("before", "after"))
        if first is None or last is None:
            continue
        status: Status = "unsure"
        interval = "no interval is known"
        if name == "accuracy" and isinstance(rows, int) and rows > 0 and 0 <= first <= 1 and 0 <= last <= 1:
            change = combined([("after", 1, _share(last, rows)), ("before", -1, _share(first, rows))])
            status = "unsure" if not change.changed else "good" if last > first else "bad"
            interval = f"difference {signed(change.mean)}, interval {signed(change.low)} to {signed(change.high)}"
        what = f"{name.capitalize()} on {number(finite(rows))} held-out rows [{stage.name}]"
        text = f"{what}: {number(first)} → {number(last)}; {interval}; {better} is better."
        return _finding(status, text)
    return None


def _share(share: float, n: int) -> Estimate:
    """Return a share of n rows with its Wilson interval. Two shares are assumed to be independent (Newcombe 1998,
    method 10), which makes the interval of their difference rather too wide.
    """
    z2 = SURE * SURE
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = SURE * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(mean=share, low=middle - reach, high=middle + reach, n=n)


def _learned(status: Status, short: str, findings: list[Finding]) -> Reply:
    return Reply(question="Did it learn?", status=status, short=short, findings=findings)


def _finding(status: Status, text: str, topic: str = "") -> Finding:
    return Finding(status=status, text=text, topic=topic)
