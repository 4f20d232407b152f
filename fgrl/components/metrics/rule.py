"""Share of answers that satisfy a rule."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.kinds import Meaning, Verifier
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean
from fgrl.measuring.statistics import Measured
from fgrl.registry import register
from fgrl.types import Span


@register("rule")
class RuleShare(Comparison):
    """Shares of answers that satisfy a rule, and each part of it. An empty answer violates every rule.

    Answers for which a rule is undecided (`code:checker`) are left out of its share. `undecided` is the share of such
    answers.
    """

    meanings = {
        "kept": Meaning("share of answers that satisfy the rule", "higher"),
        "undecided": Meaning("share of answers for which the rule is undecided", "lower"),
        "*": Meaning("share of answers that satisfy {number}", "higher"),
    }

    rule: Verifier
    """Rule that the answers should satisfy."""

    def verdict(self, answer: Answer) -> tuple[bool | None, list[Span]] | None:
        if self.rule.may_be_undecided():  # a program, which would run again
            return None
        passed = self.rule.verdict(answer.text)
        return passed, [] if passed else self.rule.violations(answer.text) or []

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        whole = [self.rule.verdict(answer.text) for answer in answers]
        kept = {"kept": mean(answers, whole)}
        if self.rule.may_be_undecided():
            kept["undecided"] = mean(answers, [verdict is None for verdict in whole])
        parts = [self.rule.verdicts(answer.text) for answer in answers]
        names = list(self.rule.verdicts(""))
        if len(names) > 1:
            kept |= {name: mean(answers, [part[name] for part in parts]) for name in names}
        return kept
