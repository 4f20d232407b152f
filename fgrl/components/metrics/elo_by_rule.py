"""Elo ratings of models by a rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic import Field, model_validator

from fgrl.kinds import Meaning, Verifier
from fgrl.measuring import pairwise
from fgrl.measuring.answer import Answer
from fgrl.measuring.pairwise import Ballot, Game
from fgrl.measuring.rated import RatedMetric
from fgrl.registry import register


@register("elo_by_rule")
class EloByRule(RatedMetric):
    """Elo ratings of models whose answers are compared by a rule: the answer with the higher score wins, equal scores
    are a tie.

    The score is the share of the rule's parts that the answer satisfies (1 or 0 for a single rule), or a reward that
    the evaluation records. A game with an undecided rule or a missing reward is missing. The reported numbers are those
    of `elo`.
    """

    meanings = {"rating": Meaning("Elo rating", "higher"), "win_rate": Meaning("share of games won", "higher")}

    rule: Verifier | None = None
    """Rule that scores the answers; null if `reward` is set."""
    reward: str | None = None
    """Name of a reward of the evaluation that scores the answers, in place of a rule."""
    margin: float = Field(0.0, ge=0)
    """Maximum difference of two scores that counts as a tie."""

    @model_validator(mode="after")
    def _one_score(self) -> EloByRule:
        if (self.rule is None) == (self.reward is None):
            raise ValueError("elo_by_rule: set either `rule` or `reward`")
        return self

    def check_rewards(self, names: Collection[str]) -> None:
        if self.reward is not None and self.reward not in names:
            known = ", ".join(names) or "none"
            raise ValueError(f"elo_by_rule: reward {self.reward!r} is not one of the evaluation's rewards: {known}")

    def games(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> list[Game]:
        scores = {id(answer): self._score(answer) for own in answers.values() for answer in own}
        by = self.reward if self.rule is None else self.rule.title()
        return [
            Game.of(own.id, name, opponent, pairwise.compare([self._ballot(scores, own, other)], "average"), by or "")
            for name, opponent, own, other in pairwise.pairings(answers, self.versus)
        ]

    def _ballot(self, scores: Mapping[int, float | None], own: Answer, other: Answer) -> Ballot:
        return pairwise.by_score(scores[id(own)], scores[id(other)], self.margin)

    def _score(self, answer: Answer) -> float | None:
        if self.rule is None:
            assert self.reward is not None  # one of the two is set
            return answer.rewards.get(self.reward)
        verdicts = list(self.rule.verdicts(answer.text).values())
        known = [verdict for verdict in verdicts if verdict is not None]
        return sum(known) / len(known) if len(known) == len(verdicts) else None
