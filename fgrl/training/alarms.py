"""Alarms: bounds on the metrics that show reward hacking and collapse."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from fgrl.base.errors import Stopped
from fgrl.registry import Settings
from fgrl.types import AlarmRecord


class Alarm(Settings):
    """Bounds of one metric. `*_first` bounds are shares of the metric's first value above 0, and do not apply before
    it. A value that is not a finite number violates every bound.
    """

    below: float | None = None
    """Lower bound: alarm if the metric is smaller."""
    above: float | None = None
    """Upper bound: alarm if the metric is greater."""
    below_first: float | None = None
    """Lower bound as a share of the metric's first value. An alarm is given if the metric is smaller."""
    above_first: float | None = None
    """Upper bound as a multiple of the metric's first value. An alarm is given if the metric is greater."""
    patience: int = Field(2, ge=1, le=1_000_000)
    """Number of consecutive iterations that must violate the bound."""
    action: Literal["warn", "stop"] = "warn"
    """Reaction to the alarm: print a warning, or stop the run with exit code 5."""

    def broken(self, value: float, first: float | None) -> str | None:
        """Return the bound that `value` violates, in words; None if it violates none. first: None if no value was above
        0 yet.
        """
        if not math.isfinite(value):
            return "not a finite number"
        bounds = [
            (self.below is not None and value < self.below, f"below {self.below}"),
            (self.above is not None and value > self.above, f"above {self.above}"),
        ]
        if first is not None:
            bounds += [
                (
                    self.below_first is not None and value < self.below_first * first,
                    f"below {self.below_first} of its first value {first:.3g}",
                ),
                (
                    self.above_first is not None and value > self.above_first * first,
                    f"above {self.above_first} times its first value {first:.3g}",
                ),
            ]
        return next((words for is_broken, words in bounds if is_broken), None)


class Alarms(Settings):
    """Alarms by metric: each field is a metric of online training, or of its reward; null switches its alarm off."""

    prompts_cut: Alarm | None = Alarm(above=0.05, patience=1)
    """Share of prompts that are longer than `max_prompt_tokens` and lose their beginning. null allows any share."""
    tokens: Alarm | None = Alarm(below_first=0.4, above_first=4.0)
    """Mean length of a response."""
    empty: Alarm | None = Alarm(above=0.2)
    """Share of responses with no text."""
    finished: Alarm | None = Alarm(below_first=0.4)
    """Share of responses that end with an end-of-sequence token."""
    kl: Alarm | None = Alarm(above=100.0)
    """KL to the reference, nats per response."""
    entropy: Alarm | None = Alarm(below=0.1)
    """Mean surprise of sampled tokens under the policy, nats: an estimate of its entropy."""
    zero_variance: Alarm | None = Alarm(above=0.8)
    """Share of prompts whose responses all got the same reward (with several responses per prompt)."""
    missing: Alarm | None = Alarm(above=0.2)
    """Share of responses whose reward failed."""
    missing_verdicts: Alarm | None = Alarm(above=0.2)
    """Share of the criteria of rubrics without a verdict: failed judgements, undecided rules. (A response whose other
    criteria are known still has a reward.)
    """
    unmatched: Alarm | None = Alarm(above=0.1)
    """Share of a critic's quotes that are not in the responses. (A response whose other quotes are found still has a
    reward.)
    """
    uncriticised: Alarm | None = Alarm(above=0.2)
    """Share of responses without a critique that can be read (of critics with an `outcome`). With `total: outcome` they
    still have a reward.
    """
    marks_agree: Alarm | None = Alarm(below=0.6)
    """Share of pairs of responses with different outcomes for which a critic's marks prefer the better response (of
    critics with an `outcome`). At 0.5 the marks contain no information about the outcome; this can happen to a trained
    critic when the policy changes.
    """
    distinct: Alarm | None = Alarm(below_first=0.5)
    """Distinct two-token sequences over all two-token sequences of a rollout."""
    mismatch: Alarm | None = Alarm(above=0.1)
    """Mean absolute difference between the policy's log-probabilities of the drawn tokens and the engine's, in nats.
    Different arithmetic (bfloat16) causes 0.02 to 0.06; more shows that the engine has other weights.
    """
    mismatch_outside: Alarm | None = Alarm(above=0.05)
    """Share of tokens whose importance weight is outside the engine's `bound`."""
    importance_weight: Alarm | None = Alarm(below=0.8, above=1.25)
    """Mean importance weight. It is 1 except for chance if the engine drew with the log-probabilities that it reports."""
    reward: Alarm | None = Alarm(patience=1)
    """Mean reward of a response. With the defaults, this alarm and those below only require that the number is finite."""
    loss: Alarm | None = Alarm(patience=1)
    """Mean loss of an optimizer step."""
    grad_norm: Alarm | None = Alarm(patience=1)
    """Norm of the gradient of the last optimizer step, before clipping."""
    critic_grad_norm: Alarm | None = Alarm(patience=1)
    """Norm of the critic's gradient of the last optimizer step, before clipping."""


class Watch:
    """Check of the alarms of a run, with one message per alarm until the metric has recovered. `keep` gets the records
    of all alarms so far whenever they change.
    """

    def __init__(
        self,
        alarms: Alarms,
        say: Callable[[str], None],
        keep: Callable[[list[AlarmRecord]], None] = lambda _records: None,
    ) -> None:
        self.alarms, self.say, self.keep = alarms, say, keep
        self.records: list[AlarmRecord] = []
        keep(self.records)
        self.first: dict[str, float] = {}
        self.streak: dict[str, int] = defaultdict(int)

    def look(self, metrics: Mapping[str, float], example: str, iteration: int = 0) -> list[str]:
        """Check one iteration's metrics. Return the names of the active alarms. Raises `Stopped` if the action of an
        active alarm is stop.
        """
        on = []
        for name in type(self.alarms).model_fields:
            alarm: Alarm | None = getattr(self.alarms, name)
            value = metrics.get(name, metrics.get(f"reward/{name}"))
            if alarm is None or value is None:
                continue
            if math.isfinite(value) and value > 0:
                self.first.setdefault(name, value)
            words = alarm.broken(value, self.first.get(name))
            self.streak[name] = self.streak[name] + 1 if words else 0
            ringing = words if self.streak[name] >= alarm.patience else None
            self._record(name, iteration, value, ringing)
            if ringing is None:
                continue
            on.append(name)
            message = f"alarm: {name} is {value:.3g}, {words}. A response: {example[:200]!r}"
            if alarm.action == "stop":
                raise Stopped(f"{message}\nstopped by alarms.{name}; set its action to warn to continue")
            if self.streak[name] == alarm.patience:
                self.say(message)
        return on

    def _record(self, name: str, iteration: int, value: float, words: str | None) -> None:
        """Begin or end the record of an alarm. words: the violated bound in words; None if the alarm has ended."""
        open_ = next((each for each in self.records if each.name == name and each.until is None), None)
        if words is not None and open_ is None:
            known = value if math.isfinite(value) else None
            self.records.append(AlarmRecord(name=name, since=iteration, value=known, bound=words))
        elif open_ is not None and words is None:
            open_.until = iteration
        else:
            return
        self.keep(self.records)

    def state_dict(self) -> dict[str, Any]:
        records = [each.model_dump() for each in self.records]
        return {"first": dict(self.first), "streak": dict(self.streak), "records": records}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.first = dict(state["first"])
        self.records = [AlarmRecord.model_validate(each) for each in state.get("records", ())]
        self.keep(self.records)
        self.streak = defaultdict(int, {name: int(count) for name, count in state["streak"].items()})
