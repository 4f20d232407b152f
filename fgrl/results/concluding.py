"""From the folder of a run to what is concluded of it. Everything is computed from recorded numbers; what was not
measured is named as unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from fgrl.evaluation.statistics import Estimate
from fgrl.results.conclusions import Change, Conclusions
from fgrl.results.evaluated import SURE, Evaluated, evaluations_of, status_of
from fgrl.results.exploiting import exploited
from fgrl.results.learning import learned
from fgrl.results.trainings import Trainings
from fgrl.runs.run import Run

MOST_CHANGES = 5
MOST_OF_A_METRIC = 2
"""Upper bound on changes of one metric, whose numbers tell much the same; 1 for a metric of symptoms (words,
characters, tokens)."""


def conclude(run: Run) -> Conclusions:
    """1. what was evaluated, 2. did it learn, 3. does it exploit its reward, 4. what changed most."""
    trainings = Trainings(run)
    evaluations = [each for stage in run.stages.values() for each in evaluations_of(stage, trainings)]
    # an evaluation stage measures the product; those while training are read where there is none
    evaluations = [each for each in evaluations if not each.while_training] or evaluations
    goals = [goal for each in evaluations for goal in each.goals()]
    replies = [learned(run, evaluations, goals), exploited(run, evaluations, goals)]
    return Conclusions(replies=[reply for reply in replies if reply is not None], changes=_changes(evaluations))


def conclusions_of(run: Run) -> Conclusions:
    """Return the stored conclusions of a run, or else what can be concluded now."""
    with suppress(ValidationError):
        return Conclusions.model_validate(run.record.conclusions)
    return conclude(run)


def renew(folder: Path) -> Conclusions:
    """Conclude again, and store it with a run that has ended."""
    run = Run(folder)
    conclusions = conclude(run)
    if run.record.exit is not None and not run.damage:
        run.write(run.record.model_copy(update={"conclusions": conclusions.model_dump()}))
    return conclusions


def _changes(evaluations: Sequence[Evaluated]) -> list[Change]:
    """Return the numbers that changed most beyond doubt, largest standardised change first."""
    changes: list[tuple[tuple[str, str], int, Change]] = []
    for each in evaluations:
        if each.grades_reward:
            continue
        for measure in each.evaluation.measures:
            before = measure[each.evaluation.baseline]
            if before is None:
                continue
            known = each.evaluation.known(measure.name)
            better = None if known is None else known.meaning.better
            of_reward = measure.name.metric in each.trained_on or (known is not None and known.purpose == "reward")
            if better is None and before.value.low == before.value.high:
                continue  # 0 by definition, as the KL of the reference to itself
            trained = {model.name for model in each.trained if each.baseline_is_start(model)}
            for row in measure.models:
                change = row.difference
                if row.model not in trained or change is None or not change.changed or not change.mean:
                    continue
                text = f"{before.value.value} → {row.value.value}"
                own = Change(
                    status="unknown" if better is None or of_reward else status_of(change, better),
                    number=str(measure.name),
                    stage=each.label,
                    words=str(measure.name) if known is None else known.meaning.words,
                    model=row.model,
                    before=before.value.mean,
                    after=row.value.mean,
                    effect=_effect(change),
                    shown=text,
                )
                most = 1 if known is not None and known.purpose == "symptom" else MOST_OF_A_METRIC
                changes.append(((each.label, measure.name.metric), most, own))
    changes.sort(key=lambda change: -math.inf if change[2].effect is None else -abs(change[2].effect))
    counts: Counter[tuple[str, str]] = Counter()
    result = []
    for metric, most, own in changes:
        if counts[metric] < most:
            counts[metric] += 1
            result.append(own)
    return result[:MOST_CHANGES]


def _effect(change: Estimate) -> float | None:
    """Return the standardised difference, from the width of its interval: mean / (standard error * sqrt(prompts))."""
    assert change.mean is not None
    assert change.low is not None
    assert change.high is not None
    error = (change.high - change.low) / (2 * SURE)
    return change.mean / (error * math.sqrt(max(1, change.groups))) if error > 0 else None
