"""Share of comparisons in which a judge prefers a model's answer to another's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.feedback.llm.asking import Asked, Question
from fgrl.feedback.llm.reading import Refused, Scale, Verdict, odds, read_label, read_verdict
from fgrl.feedback.templates import Prompt
from fgrl.kinds import Meaning, ToDraw
from fgrl.measuring import pairwise
from fgrl.measuring.answer import Answer
from fgrl.measuring.judging import JudgedMetric, answer_text, compared_texts, shares
from fgrl.measuring.pairwise import Ballot
from fgrl.measuring.statistics import Measured, length_adjusted, weighted_mean
from fgrl.registry import register

STRONG = 3.0
"""Weight of a verdict "much better", as in Arena-Hard."""


@register("win_rate")
class WinRate(JudgedMetric):
    """Comparisons by a judge of each answer with another model's answer to the same prompt, in both orders.

    win_rate: share of comparisons won; ties, and pairs whose two orders name different winners, count half. A pair with
    a missing judgement is left out. length_adjusted: the same at equal length, by a minimal logistic model (see
    `length_adjusted.py`; it is not AlpacaEval's LC win rate). ties, inconsistent: shares of judgements, and of pairs.
    position_bias: of the judgements that chose, the share for the answer shown first minus the share for the second: a
    judge that always prefers the first has a win rate of 0.5 and a bias of 1. refused, unparsed, failed: shares of all
    questions.
    """

    meanings = {
        "win_rate": Meaning("share of comparisons that the judge decides for the model", "higher", even=0.5),
        "length_adjusted": Meaning("win rate at equal length", "higher", even=0.5),
    }

    version = 2
    placeholders = ("question", "first", "second", "reference")
    required = ("first", "second")
    shows = 2

    versus: str | None = None
    """Name of the model to compare with; null is the baseline."""
    scale: Scale = 3
    """Number of labels that the prompt asks for: [[1]], [[2]], [[tie]]; or [[1>>2]], [[1>2]], [[1=2]], [[2>1]],
    [[2>>1]], where strong preferences count three times, as in Arena-Hard.
    """
    weighting: Literal["verdict", "logprob"] = "verdict"
    """Source of a judgement. `verdict`: the text of the answer. `logprob`: the probability of the token 1 against 2 as
    the first token of the answer, if the endpoint provides it (AlpacaEval 2.0's soft preference); the prompt must then
    ask for nothing but 1 or 2. Without probabilities the verdict counts, and `hard` reports the share of such cases.
    """
    top_logprobs: int = Field(20, ge=2)
    """Number of the most probable tokens to request, with `weighting: logprob`."""
    ridge: float = Field(1.0, gt=0)
    """Strength of the ridge penalty on the slope of length."""

    @model_validator(mode="after")
    def _check(self) -> WinRate:
        if self.scale == 5 and self.weighting == "logprob":
            raise ValueError("scale: labels of five levels have no single token: use `weighting: verdict`")
        return self

    def check_models(self, names: Collection[str], baseline: str) -> None:
        versus = self.versus or baseline
        if versus not in names:
            raise ValueError(f"win_rate: versus {versus!r} is not one of the models: {', '.join(names)}")
        if set(names) == {versus}:
            raise ValueError(f"win_rate compares other models with {versus!r}, and there is none")

    @property
    def longest(self) -> int | None:
        return self.max_tokens or (1 if self.weighting == "logprob" else None)

    def calls(self, expected: ToDraw) -> int:
        prompts, _turns = expected.size()
        return 2 * (len(expected.models) - 1) * prompts * expected.per_prompt

    def by_model(self, answers: Mapping[str, Sequence[Answer]], baseline: str | None) -> dict[str, dict[str, Measured]]:
        outcomes = self.put(self.plan(answers, baseline))
        pairs: dict[str, list[tuple[Answer, Answer]]] = {}
        for name, _opponent, own, other in self._pairings(answers, baseline):
            pairs.setdefault(name, []).append((own, other))
        return {name: self._numbers(pairs[name], [asked for _, asked in judged]) for name, judged in outcomes.items()}

    def plan(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[dict[str, Any], Question[Ballot]]]:
        prompt = self.template()
        return [
            ({"model": name, "id": own.id, "first": first}, self._question(prompt, *shown))
            for name, opponent, own, other in self._pairings(answers, baseline)
            for first, shown in zip((name, opponent), pairwise.in_orders(own, other), strict=True)
        ]

    def _pairings(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[str, str, Answer, Answer]]:
        versus = self.versus or baseline
        if versus is None or versus not in answers:
            raise DataError(f"win_rate: no answers of {versus!r} to compare with; there are: {', '.join(answers)}")
        return list(pairwise.pairings(answers, versus))

    def opponents(self, model: str, models: Collection[str], baseline: str | None) -> Collection[str]:
        return [name for name in (self.versus or baseline,) if name is not None]

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        return "own prompt, both orders: no benchmark's official number"

    # ------------------------------------------------------------------------------------------------------------------

    def _question(self, prompt: Prompt, first: Answer, second: Answer) -> Question[Ballot]:
        soft = self.weighting == "logprob"
        read: Callable[[str], Ballot] = (lambda text: Ballot()) if soft else self._read
        texts, likely = compared_texts(first, second), self.top_logprobs if soft else 0
        request = self.request(prompt, texts, logprobs=likely, about=first.id)
        return Question(request, read, allow_truncated=soft)

    def _read(self, text: str) -> Ballot:
        level = read_label(text, self.scale)
        verdict: Verdict = "first" if level > 0 else "second" if level < 0 else "tie"
        return Ballot.of_verdict(verdict, STRONG if abs(level) == 2 else 1.0)

    def _numbers(self, pairs: Sequence[tuple[Answer, Answer]], asked: Sequence[Asked[Ballot]]) -> dict[str, Measured]:
        soft = self.weighting == "logprob"
        judged = [_softly(answer) if soft else answer for answer in asked]
        ballots = [answer.value or Ballot() for answer in judged]
        comparisons = pairwise.compare_each(ballots, "both", "average" if soft else "tie")
        won = [comparison.p if soft else comparison.value for comparison in comparisons]
        weights = [comparison.weight for comparison in comparisons]
        longer = [len(answer_text(own)) - len(answer_text(other)) for own, other in pairs]
        ids = [own.id for own, _other in pairs]
        each = [id for id in ids for _order in range(2)]
        sides = [ballot.side for ballot in ballots]
        agree = [comparison.agree for comparison in comparisons]
        numbers = {
            "win_rate": weighted_mean(won, ids, weights),
            "length_adjusted": length_adjusted(won, longer, ids, self.ridge, weights),
            "ties": weighted_mean([None if side is None else float(side == 0) for side in sides], each),
            "inconsistent": weighted_mean([None if same is None else float(not same) for same in agree], ids),
            "position_bias": weighted_mean([float(side) if side else None for side in sides], each),
            **shares(judged, each),
        }
        if soft:
            hard = [
                None if answer.value is None else float(odds(answer.completion.logprobs) is None) for answer in judged
            ]
            numbers["hard"] = weighted_mean(hard, each)
        return numbers


def _softly(asked: Asked[Ballot]) -> Asked[Ballot]:
    """Return a judgement by the log-probabilities of 1 and 2, or by its text if there are none."""
    if asked.failure is not None:
        return asked
    p = odds(asked.completion.logprobs)
    if p is not None:
        return replace(asked, value=Ballot.of_probability(p))
    try:
        return replace(asked, value=Ballot.of_verdict(read_verdict(asked.completion.text)))
    except Refused as problem:
        return replace(asked, value=None, failure="refused", reason=str(problem))
    except ValueError as problem:
        return replace(asked, value=None, failure="unreadable", reason=str(problem))
