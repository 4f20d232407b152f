"""Conclusions from the folder of a run. All are computed from recorded numbers; numbers that were not measured are
named as unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from fgrl.runs.results.conclusions import Change, Conclusions
from fgrl.runs.results.evaluated import Evaluated, Moved, evaluations_of
from fgrl.runs.results.trainings import Trainings
from fgrl.runs.results.verdict import SURE, hacked, learned
from fgrl.runs.run import Run

MOST_CHANGES = 5
MOST_OF_A_METRIC = 2
"""Upper bound on the changes of one metric that are shown, because its numbers are closely related; 1 for a metric of
symptoms (words, characters, tokens).
"""


def conclude(run: Run) -> Conclusions:
    """Return the conclusions: 1. the evaluations, 2. whether the policy learned, 3. whether it exploits its reward, 4.
    the largest changes.
    """
    trainings = Trainings(run)
    evaluations = [each for stage in run.stages.values() for each in evaluations_of(stage, trainings)]
    # an evaluation stage measures the product; those while training are read where there is none
    evaluations = [each for each in evaluations if not each.set_of_training] or evaluations
    goals = [goal for each in evaluations for goal in each.goals()]
    replies = [learned(run, evaluations, goals), hacked(run, evaluations, goals)]
    return Conclusions(replies=[reply for reply in replies if reply is not None], changes=_changes(evaluations))


def conclusions_of(run: Run) -> Conclusions:
    """Return the stored conclusions of a run, or else new conclusions from its present state."""
    with suppress(ValidationError):
        return Conclusions.model_validate(run.record.conclusions)
    return conclude(run)


def renew(folder: Path) -> Conclusions:
    """Compute the conclusions again, and store them if the run has ended."""
    run = Run(folder)
    conclusions = conclude(run)
    if run.record.exit is not None and not run.damage:
        run.write(run.record.model_copy(update={"conclusions": conclusions.model_dump()}))
    return conclusions


def _changes(evaluations: Sequence[Evaluated]) -> list[Change]:
    """Return the numbers that changed most and whose intervals exclude 0, largest standardised change first."""
    moved = [own for each in evaluations if not each.grades_reward for own in each.moved]
    counts: Counter[tuple[str, str]] = Counter()
    result = []
    for change, own in sorted(filter(None, map(_change, moved)), key=lambda pair: -abs(pair[0].effect or math.inf)):
        counts[change.stage, own.name.metric] += 1
        if counts[change.stage, own.name.metric] <= (1 if own.purpose == "symptom" else MOST_OF_A_METRIC):
            result.append(change)
    return result[:MOST_CHANGES]


def _change(own: Moved) -> tuple[Change, Moved] | None:
    """Return the change of a number, or None if its interval includes 0 or if it was fixed before, as the KL of the
    reference to itself.
    """
    before, change = own.before, own.change
    if before is None or change is None or not change.changed or not change.mean:
        return None
    if own.better is None and before.low == before.high:
        return None
    assert change.low is not None
    assert change.high is not None
    deviation = (change.high - change.low) / (2 * SURE) * math.sqrt(max(1, change.groups))
    return Change(
        status="unknown" if own.purpose == "reward" else own.status,
        number=str(own.name), stage=own.of.label, words=own.words, model=own.model.name,
        before=before.mean, after=own.after.mean, effect=change.mean / deviation if deviation else None,
        shown=f"{before.value} → {own.after.value}",
    ), own  # fmt: skip
