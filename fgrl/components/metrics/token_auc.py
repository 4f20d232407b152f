"""Do learned token rewards find the tokens that violate a rule?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import Field

from fgrl import ops
from fgrl.errors import DataError
from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Comparison, mean
from fgrl.evaluation.statistics import Measured, area_under_curve, auc
from fgrl.kinds import Verifier
from fgrl.registry import register


@register("token_auc")
class TokenAuc(Comparison):
    """Probability that a token that violates the rule gets a lower reward than one that does not (ties count a half).

    A token violates the rule when its characters overlap a violation. Left out: the end-of-sequence token, tokens
    without a reward, and answers for which the rule cannot locate violations. Two numbers per reward: `<reward>`
    compares tokens of all answers with each other, so a reward scores well that only knows which answers are bad;
    `<reward> within` compares only tokens of the same answer (mean over the answers that have both kinds), so a reward
    that is constant over each answer gets exactly 0.5. Missing when no token violates the rule.
    """

    rule: Verifier
    """The rule; it must be able to locate its violations."""
    rewards: list[str] | None = Field(None, min_length=1)
    """Names of the rewards in the evaluation; null: all that it recorded."""

    def check_rewards(self, names: Collection[str]) -> None:
        missing = [name for name in self.rewards or () if name not in names]
        if missing:
            known = ", ".join(names) or "none"
            raise ValueError(f"token_auc reads the reward {missing[0]!r}; the rewards of this evaluation: {known}")
        if not names:
            raise ValueError("token_auc reads token rewards, and this evaluation has no `rewards`: name one there")

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        if answers and all(answer.given for answer in answers):
            return {}  # no tokens, no rewards
        labels = [self._labels(answer) for answer in answers]
        result: dict[str, Measured] = {}
        for reward in self._names(answers):
            scores: list[float] = []
            breaking: list[bool] = []
            prompts: list[str] = []
            within: list[float | None] = []
            for answer, label in zip(answers, labels, strict=True):
                rewards = _rewards(answer, reward)
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

    def _names(self, answers: Sequence[Answer]) -> list[str]:
        recorded = list(dict.fromkeys(name for answer in answers for name in answer.token_rewards))
        if not recorded and answers:
            raise DataError("token_auc: the evaluation recorded no token rewards; name some under its `rewards`")
        return recorded if self.rewards is None else self.rewards

    def _labels(self, answer: Answer) -> list[bool | None]:
        """Of each token: does it violate the rule? None: it is left out."""
        spans = self.rule.violations(answer.text)
        if spans is None:
            return [None] * len(answer.offsets)
        end = len(answer.text)
        marks = ops.spans_to_tokens(spans, answer.offsets).tolist()
        return [None if offset == (end, end) else mark < 0 for mark, offset in zip(marks, answer.offsets, strict=True)]


def _rewards(answer: Answer, reward: str) -> list[float | None]:
    if reward not in answer.token_rewards:
        known = ", ".join(answer.token_rewards) or "none"
        raise DataError(f"token_auc: the answers have no reward {reward!r}; the evaluation recorded: {known}")
    return answer.token_rewards[reward]
