"""Agreement of learned token rewards with the tokens that violate a rule."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import field_validator

from fgrl.base import ops
from fgrl.kinds import Meaning, Verifier
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.reward_numbers import OfRewards
from fgrl.measuring.statistics import Measured, area_under_curve, auc
from fgrl.registry import register


@register("token_auc")
class TokenAuc(OfRewards):
    """Probability that a token that violates the rule gets a lower reward than a token that does not (ties count half).

    A token violates the rule if it lies in a violation, apart from white space before it, or if a violation lies in it.
    Left out: the end-of-sequence token, tokens without a reward, and answers for which the rule cannot locate
    violations. Two numbers per reward: `<reward>` compares tokens of all answers with each other, so a reward that only
    separates good from bad answers scores well; `<reward> within` compares only tokens of the same answer (mean over
    the answers that have both kinds), so a reward that is constant over each answer gets exactly 0.5. Missing when no
    token violates the rule.
    """

    purpose = "reward"
    meanings = {
        "* within": Meaning("how well the reward finds violations inside an answer ({number})", "higher", even=0.5),
        "*": Meaning("how well the reward finds violations ({number})", "higher", even=0.5),
    }

    version = 3

    rule: Verifier
    """Rule that can locate its violations."""

    @field_validator("rule")
    @classmethod
    def _marks_breaks(cls, rule: Verifier) -> Verifier:
        if not rule.marks_breaks():
            raise ValueError(
                f"{rule.title()} never marks what breaks it, so no token could count as violating it; take a rule that "
                "forbids something or sets an upper limit (docs/how-to/verifiers.md lists which rules mark breaks)"
            )
        return rule

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        labels = [self._labels(answer) for answer in answers]
        result: dict[str, Measured] = {}
        for reward, values in self.recorded(answers).items():
            scores: list[float] = []
            breaking: list[bool] = []
            prompts: list[str] = []
            within: list[float | None] = []
            for answer, label, rewards in zip(answers, labels, values, strict=True):
                labelled = [
                    (-value, broken)
                    for value, broken in zip(rewards, label, strict=True)
                    if value is not None and broken is not None
                ]
                scores += [score for score, _broken in labelled]
                breaking += [broken for _score, broken in labelled]
                prompts += [answer.id] * len(labelled)
                within.append(auc([score for score, _broken in labelled], [broken for _score, broken in labelled]))
            pooled = area_under_curve(scores, breaking, prompts, [answer.id for answer in answers])
            result[reward] = pooled
            result[f"{reward} within"] = mean(answers, within)
        return result

    def _labels(self, answer: Answer) -> list[bool | None]:
        """Return for each token whether it violates the rule; None if it is left out."""
        spans = None if answer.turn else self.rule.violations(answer.text)
        if spans is None:
            return [None] * len(answer.offsets)
        end = len(answer.text)
        marks = ops.spans_to_tokens(spans, answer.offsets, answer.text, partial=True).tolist()
        return [None if offset == (end, end) else mark < 0 for mark, offset in zip(marks, answer.offsets, strict=True)]
