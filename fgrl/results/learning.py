"""Signs that a training learned. Learning is only asserted of a number whose metric declares which side is better, and
whose interval of the paired difference excludes 0; and of a reward never, since it is what was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fgrl.evaluation.statistics import Estimate, combined
from fgrl.results.conclusions import MOST_FINDINGS, Finding, Reply, Status
from fgrl.results.evaluated import SURE, Evaluated, Goal
from fgrl.results.text import number, signed
from fgrl.runs.reading import finite, mapping
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage

ADD = (
    'To learn whether the answers got better, add a number that the training did not use to "{key}" of the recipe and run '
    'it again. A Python function that scores answers: {{name: function, path: "goal.py:score", better: higher}}.'
)


def learned(run: Run, evaluations: Sequence[Evaluated], goals: Sequence[Goal]) -> Reply | None:
    """Return the reply to whether the models learned; None where nothing was measured."""
    fits = [finding for stage in run.stages.values() if (finding := _fit(stage)) is not None]
    undeclared = [finding for each in evaluations for finding in _undeclared(each)]
    if counted := _decisive(goals):
        findings = [Finding(status=_shown(goal), text=f"{goal.text}.") for goal in goals[:MOST_FINDINGS]]
        if not any(goal.is_reward_itself for goal in counted):
            return _reply(*_measured(counted), findings + fits)
        compared = "can be compared" if len(goals) > len(counted) else "was measured"
        rest = "no other number declares which side of it is better" if undeclared else f"nothing else {compared}"
        status, moved = _of_reward({goal.status for goal in counted})
        more = [] if undeclared else [Finding(status="unknown", text=ADD.format(key=evaluations[0].metrics_key))]
        return _reply(status, f"{moved}; {rest}.", findings + more + undeclared[:MOST_FINDINGS] + fits)
    if undeclared:
        short = "Unknown: no number declares which side of it is better."
        return _reply("unknown", short, undeclared[:MOST_FINDINGS] + fits)
    if fits and all(fit.status == "good" for fit in fits):
        return _reply("good", "Yes, on held-out rows of the training data.", fits)
    if fits:
        short = "Not shown: on held-out rows there is no difference with an interval that excludes 0."
        return _reply("unsure", short, fits)
    trains = any(stage.component in ("finetune", "rl") for stage in run.stages.values())
    return _reply("unknown", "Unknown: nothing held out was measured.", []) if trains else None


def _measured(counted: Sequence[Goal]) -> tuple[Status, str]:
    """Return status and reply by the headline numbers."""
    states = {goal.status for goal in counted}
    if states >= {"good", "bad"}:
        return "unsure", "Partly: some numbers improved, others got worse."
    if "good" in states:
        every = all(goal.status == "good" for goal in counted if goal.change is not None)
        return "good", f"Yes, on {'held-out prompts' if every else 'some of the held-out numbers'}."
    if "bad" in states:
        return "bad", "No: it got worse on held-out prompts."
    if "unsure" in states:
        return "unsure", "Not shown: the interval of the difference includes 0."
    if all(goal.change is None for goal in counted):
        return "unknown", "Unknown: the model that the training began with was not measured in the same way."
    return "unknown", "Unknown: the difference has no interval, so it may be chance."


def _of_reward(states: set[Status]) -> tuple[Status, str]:
    """Return status and first words of the reply where the reward on held-out prompts is the only number."""
    if states >= {"good", "bad"}:
        return "unsure", "The reward of some models rose, that of others fell"
    if "good" in states:
        return "unknown", "The reward rose"
    if "bad" in states:
        return "bad", "The reward fell"
    return ("unsure" if "unsure" in states else "unknown"), "The reward did not clearly change"


def _shown(goal: Goal) -> Status:
    """Return the status beside a number: a reward that rose is no good sign by itself."""
    return "unknown" if goal.is_reward_itself and goal.status == "good" else goal.status


def _reply(status: Status, short: str, findings: list[Finding]) -> Reply:
    return Reply(question="Did it learn?", status=status, short=short, findings=findings)


def _decisive(goals: Sequence[Goal]) -> list[Goal]:
    """Return the numbers that can be compared, where there are any; and of these the reward only where nothing else was
    measured.
    """
    compared = [goal for goal in goals if goal.change is not None] or list(goals)
    return [goal for goal in compared if not goal.of_reward] or compared


def _undeclared(evaluated: Evaluated) -> Iterable[Finding]:
    """Numbers with a difference, but without a declared direction."""
    for measure in evaluated.evaluation.measures:
        if evaluated.evaluation.known(measure.name) is None:
            for row in measure.models:
                if row.difference is not None and row.difference.mean is not None:
                    interval = f", interval {row.difference.interval}" if row.difference.interval else ""
                    text = f"{measure.name} of {row.model}: difference {row.difference.change}{interval}."
                    yield Finding(status="unknown", text=text)


def _fit(stage: Stage) -> Finding | None:
    """Return a finding on the rows that a finetuning did not train on."""
    held = mapping(stage.summary.get("holdout"))
    before, after = mapping(held.get("before")), mapping(held.get("after"))
    rows = held.get("rows")
    for name, better in (("accuracy", "higher"), ("loss", "lower")):
        first, last = finite(before.get(name)), finite(after.get(name))
        if first is None or last is None:
            continue
        text = f"{name.capitalize()} on {number(finite(rows))} held-out rows [{stage.name}]: {number(first)} → {number(last)}"
        if name == "accuracy" and isinstance(rows, int) and rows > 0 and 0 <= first <= 1 and 0 <= last <= 1:
            change = combined([("after", 1, _share(last, rows)), ("before", -1, _share(first, rows))])
            status: Status = "unsure" if not change.changed else "good" if last > first else "bad"
            interval = f"difference {signed(change.mean)}, interval {signed(change.low)} to {signed(change.high)}"
            return Finding(status=status, text=f"{text}; {interval}; {better} is better.")
        return Finding(status="unsure", text=f"{text}; no interval is known; {better} is better.")
    return None


def _share(share: float, n: int) -> Estimate:
    """Return a share of n rows with its Wilson interval. Two of them are taken as independent (Newcombe 1998, method
    10), which makes the interval of their difference rather too wide.
    """
    z2 = SURE * SURE
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = SURE * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(mean=share, low=middle - reach, high=middle + reach, n=n)
