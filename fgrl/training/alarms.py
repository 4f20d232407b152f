"""Alarms: bounds of the metrics in which reward hacking and collapse show."""

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
    """Bounds of one metric; `*_first` bounds are shares of the metric's first value above 0, and hold nothing before
    it. A value that is not a finite number breaks every bound.
    """

    below: float | None = None
    """Alarm when the metric is smaller than this."""
    above: float | None = None
    """Alarm when the metric is greater than this."""
    below_first: float | None = None
    """Alarm when the metric is smaller than this share of its first value."""
    above_first: float | None = None
    """Alarm when the metric is greater than this multiple of its first value."""
    patience: int = Field(2, ge=1, le=1_000_000)
    """Iterations in a row that must break the bound."""
    action: Literal["warn", "stop"] = "warn"
    """Print a warning, or stop the run with exit code 5."""

    def broken(self, value: float, first: float | None) -> str | None:
        """Return the bound that `value` breaks, in words; None when it breaks none. first: None: no value was above 0
        yet.
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
    """Each field is a metric of online training, or of its reward; null switches its alarm off."""

    prompts_cut: Alarm | None = Alarm(above=0.05, patience=1)
    """Share of prompts that are longer than `max_prompt_tokens` and lose their beginning. null allows it."""
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
    """Of pairs of responses with different outcomes, the share in which a critic's marks prefer the better one (of critics
    with an `outcome`). At 0.5 the marks say nothing about it; those of a trained critic can stop to when the policy
    changes.
    """
    distinct: Alarm | None = Alarm(below_first=0.5)
    """Distinct two-token sequences over all two-token sequences of a rollout."""
    mismatch: Alarm | None = Alarm(above=0.1)
    """Mean difference, without its sign, between the policy's log-probabilities of the drawn tokens and those of the
    engine, nats. Other arithmetic (bfloat16) makes 0.02 to 0.06; more is an engine with other weights.
    """
    mismatch_outside: Alarm | None = Alarm(above=0.05)
    """Share of tokens whose importance weight is outside of the engine's `bound`."""
    importance_weight: Alarm | None = Alarm(below=0.8, above=1.25)
    """Mean importance weight, which is 1 but for chance where the engine drew with the log-probabilities that it gives."""
    reward: Alarm | None = Alarm(patience=1)
    """Mean reward of a response. As set here, this alarm and those below have no bounds but that the number is finite.
    """
    loss: Alarm | None = Alarm(patience=1)
    """Mean loss of an optimizer step."""
    grad_norm: Alarm | None = Alarm(patience=1)
    """Norm of the gradient of the last optimizer step, before clipping."""
    critic_grad_norm: Alarm | None = Alarm(patience=1)
    """The same, of the critic."""


class Watch:
    """Checks the alarms of a run; one message per alarm until the metric has recovered. `keep` gets the records of all
    alarms so far whenever they change.
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
        """Check one iteration's metrics. Returns the names of the alarms that are on; raises `Stopped` when the action
        of one is stop.
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
        """Begin or end the record of an alarm. words: the bound that it is about; None: it is off."""
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
