"""How many answers keep a rule."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.components.kinds import Verifier
from fgrl.components.metrics.answer import Answer
from fgrl.components.metrics.comparison import Comparison, mean
from fgrl.components.verifiers.all_of import verdicts
from fgrl.registry import register
from fgrl.statistics import Measured


@register("rule")
class RuleShare(Comparison):
    """Share of answers that keep a rule, and each part of it. An empty answer breaks every rule."""

    rule: Verifier
    """The rule."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        kept = {"kept": mean(answers, [float(self.rule.check(answer.response)) for answer in answers])}
        parts = [verdicts(self.rule, answer.response) for answer in answers]
        names = list(verdicts(self.rule, ""))
        if len(names) > 1:
            kept |= {name: mean(answers, [float(part[name]) for part in parts]) for name in names}
        return kept
