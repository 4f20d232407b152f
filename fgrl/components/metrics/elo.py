"""Elo ratings of models by a judge ("Fine-Tuning LLMs with Fine-Grained Human Feedback on Text Spans", section 4 and
appendix D).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import PrivateAttr

from fgrl.feedback.llm.asking import Asked, Question
from fgrl.feedback.llm.reading import read_label
from fgrl.feedback.templates import Prompt
from fgrl.kinds import Meaning, ToDraw
from fgrl.measuring import pairwise
from fgrl.measuring.answer import Answer
from fgrl.measuring.judging import JudgedMetric, compared_texts, shares
from fgrl.measuring.pairwise import Ballot, Disagreement, Game, Look, Orders
from fgrl.measuring.rated import RatedMetric
from fgrl.measuring.statistics import Measured
from fgrl.registry import register

JUDGE = "judge"
"""Author of the verdicts in the record of games."""


@register("elo")
class Elo(RatedMetric, JudgedMetric):
    """A judge compares the answers of every two models to each prompt; all verdicts together give Elo ratings.

    rating: base 10, scale 400, maximum likelihood, a tie counts one half; difference: to the best of all models, with
    the interval of the paper's Table 2 (percentiles of a bootstrap over prompts). win_rate: share of decided games won,
    ties count half. ties, missing: shares of games; a game with a missing judgment is left out of the ratings.
    chose_first: of the judgments that chose, the share for the answer shown first; 0.5 is no position bias.
    inconsistent: with both orders, the share of games in which they disagree. refused, unparsed, failed: shares of
    questions. Every game is in `games-<name>.jsonl`; `fgrl elo` prints a line for each model.
    """

    meanings = {"rating": Meaning("Elo rating", "higher"), "win_rate": Meaning("share of games won", "higher")}

    placeholders = ("question", "first", "second", "reference")
    required = ("first", "second")
    shows = 2

    orders: Orders = "one"
    """Order of the answers. `one`: each pair once per prompt, as in the paper; a hash of the prompt and the two models
    decides which answer is shown first, so that every model is shown first equally often. `both`: each pair in both
    orders, as one game.
    """
    disagreement: Disagreement = "tie"
    """Result of a game whose two orders disagree: a tie, the verdict of the mean probability, or missing (drop)."""

    _outcomes: list[tuple[dict[str, Any], Asked[Ballot]]] = PrivateAttr(default_factory=list)

    def calls(self, expected: ToDraw) -> int:
        prompts, _turns = expected.size()
        models = len(expected.models)
        pairs = models - 1 if self.versus else models * (models - 1) // 2
        return pairs * prompts * expected.per_prompt * (2 if self.orders == "both" else 1)

    def plan(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[dict[str, Any], Question[Ballot]]]:
        prompt = self.template()
        return [
            ({"model": name, "opponent": opponent, "id": own.id, "first": first}, self._question(prompt, *shown))
            for name, opponent, own, other in pairwise.pairings(answers, self.versus)
            for first, *shown in self._shown(name, opponent, own, other)
        ]

    def games(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> list[Game]:
        asked = self._asked(answers, baseline)
        looks = 2 if self.orders == "both" else 1
        games = []
        for start in range(0, len(asked), looks):
            own = asked[start : start + looks]
            about = own[0][0]
            shown = [(about["first"], outcome.value or Ballot()) for about, outcome in own]
            aligned = [ballot if first == about["model"] else ballot.exchanged() for first, ballot in shown]
            ballots = [aligned[0], *(ballot.exchanged() for ballot in aligned[1:])]  # as `compare` takes both orders
            outcome = pairwise.compare(ballots, self.disagreement)
            seen = [Look(first=first, verdict=ballot.verdict) for first, ballot in shown]
            games.append(Game.of(about["id"], about["model"], about["opponent"], outcome, JUDGE, seen))
        return games

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        measured = super().by_model(answers, baseline)
        for model, numbers in measured.items():
            own = [pair for pair in self._outcomes if model in (pair[0]["model"], pair[0]["opponent"])]
            numbers |= shares([outcome for _about, outcome in own], [about["id"] for about, _outcome in own])
        return measured

    # ------------------------------------------------------------------------------------------------------------------

    def _asked(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[dict[str, Any], Asked[Ballot]]]:
        """Return each question with its outcome, in the order of the plan."""
        by_model = self.put(self.plan(answers, baseline))
        self._outcomes = [pair for own in by_model.values() for pair in own]
        return self._outcomes

    def _shown(self, name: str, opponent: str, own: Answer, other: Answer) -> list[tuple[str, Answer, Answer]]:
        """Return the model shown first and the two answers in the order of display, once for each order."""
        both = [(name, own, other), (opponent, other, own)]
        if self.orders == "both":
            return both
        one, two = sorted((name, opponent))
        digest = hashlib.sha256(f"{own.id}\0{one}\0{two}".encode()).digest()
        first = one if digest[0] % 2 == 0 else two
        return [shown for shown in both if shown[0] == first]

    def _question(self, prompt: Prompt, first: Answer, second: Answer) -> Question[Ballot]:
        return Question(self.request(prompt, compared_texts(first, second), about=first.id), _read)


def _read(text: str) -> Ballot:
    level = read_label(text)
    return Ballot.of_verdict("first" if level > 0 else "second" if level < 0 else "tie")
