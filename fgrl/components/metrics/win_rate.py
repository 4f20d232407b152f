"""How often a judge prefers a model's answer to another's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from fgrl.errors import DataError
from fgrl.evaluation.answer import Answer
from fgrl.evaluation.judging import NONE, Judged, answer_text, asked_text, by_prompt, shares
from fgrl.evaluation.length_adjusted import length_adjusted
from fgrl.evaluation.statistics import Measured, weighted_mean
from fgrl.evaluation.verdicts import Scale, read_label
from fgrl.kinds import ToDraw
from fgrl.llm.asking import Asked, Question
from fgrl.llm.reading import Refused, odds, read_verdict
from fgrl.registry import register
from fgrl.templates import Prompt

STRONG = 3.0
"""A verdict of "much better" counts as this many, as in Arena-Hard."""


@dataclass(frozen=True)
class Game:
    """One judgement: how the two answers did as they were shown."""

    p: float | None
    """That the answer shown first is better; 0, 0.5 and 1 are verdicts. None is missing."""
    weight: float = 1.0

    @property
    def side(self) -> int | None:
        """1: the first is better, -1: the second, 0: neither."""
        return None if self.p is None else (self.p > 0.5) - (self.p < 0.5)


@dataclass(frozen=True)
class Match:
    """A model's answer against the other's, judged in both orders."""

    id: str
    here: Game
    """The model's answer is shown first."""
    there: Game
    """The other's is."""
    longer: int
    """Characters by which the model's answer is longer."""

    @property
    def consistent(self) -> bool | None:
        """Do both orders prefer the same answer? None when one of them is missing."""
        if self.here.side is None or self.there.side is None:
            return None
        return self.here.side == -self.there.side

    def won(self, soft: bool) -> float | None:
        """0 to 1; None when a judgement is missing. An inconsistent pair of verdicts counts half."""
        if self.here.p is None or self.there.p is None:
            return None
        if soft or self.consistent:
            return (self.here.p + 1 - self.there.p) / 2
        return 0.5

    @property
    def weight(self) -> float:
        return (self.here.weight + self.there.weight) / 2


@register("win_rate")
class WinRate(Judged):
    """A judge compares each answer with another model's answer to the same prompt, in both orders.

    win_rate: share of comparisons won; ties, and pairs whose two orders name different winners, count half. A pair of which a
    judgement is missing is left out. length_adjusted: the same at equal length, by a minimal logistic model (see
    `length_adjusted.py`; it is not AlpacaEval's LC win rate). ties, inconsistent: shares of judgements, and of pairs.
    position_bias: of the judgements that chose, those for the answer shown first less those for the second, over both: a judge
    that always takes the first has a win rate of 0.5 and a bias of 1. refused, unparsed, failed: shares of all questions.
    """

    says = ("question", "first", "second", "reference")
    needed = ("first", "second")
    shows = 2

    versus: str | None = None
    """Name of the model to compare with; null is the baseline."""
    scale: Scale = 3
    """Labels that the prompt asks for: [[1]], [[2]], [[tie]]; or [[1>>2]], [[1>2]], [[1=2]], [[2>1]], [[2>>1]], of which the
    strong ones count three times, as in Arena-Hard."""
    weighting: Literal["verdict", "logprob"] = "verdict"
    """`logprob`: take the probability of the token 1 against 2 as the first token of the answer, where the endpoint gives it
    (AlpacaEval 2.0's soft preference); the prompt must ask for nothing but 1 or 2. Where it does not, the verdict counts, and
    `hard` says how often that was."""
    top_logprobs: int = Field(20, ge=2)
    """With `weighting: logprob`, how many of the most probable tokens to ask for."""
    ridge: float = Field(1.0, gt=0)
    """Strength with which the slope of length is held to 0."""

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
        asked = self.put(self.plan(answers, baseline))
        result: dict[str, dict[str, Measured]] = {}
        start = 0
        for name, some in self._pairs(answers, baseline).items():
            result[name] = self._numbers(some, asked[start : start + 2 * len(some)])
            start += 2 * len(some)
        return result

    def plan(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> list[tuple[dict[str, Any], Question[Game]]]:
        prompt, versus = self.template(), self.versus or baseline
        return [
            ({"model": name, "id": own.id, "first": first}, self._question(prompt, *shown))
            for name, some in self._pairs(answers, baseline).items()
            for own, other in some
            for first, shown in ((name, (own, other)), (versus, (other, own)))
        ]

    def _pairs(
        self, answers: Mapping[str, Sequence[Answer]], baseline: str | None
    ) -> dict[str, list[tuple[Answer, Answer]]]:
        """The comparisons of every model."""
        versus = self.versus or baseline
        if versus is None or versus not in answers:
            raise DataError(f"win_rate: no answers of {versus!r} to compare with; there are: {', '.join(answers)}")
        return {
            name: matched(name, found, versus, answers[versus]) for name, found in answers.items() if name != versus
        }

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        return "prompt of our own, both orders: no benchmark's official number"

    # ------------------------------------------------------------------------------------------------------------------

    def _question(self, prompt: Prompt, first: Answer, second: Answer) -> Question[Game]:
        soft = self.weighting == "logprob"
        read: Callable[[str], Game] = (lambda text: Game(None)) if soft else self._read
        return Question(
            prompt.fill(
                {
                    "question": asked_text(first),
                    "first": answer_text(first),
                    "second": answer_text(second),
                    "reference": "\n\n".join(first.references) or NONE,
                }
            ),
            read,
            max_tokens=self.longest,
            temperature=self.temperature,
            logprobs=self.top_logprobs if soft else 0,
            allow_truncated=soft,
        )

    def _read(self, text: str) -> Game:
        level = read_label(text, self.scale)
        return Game(0.5 + (level > 0) / 2 - (level < 0) / 2, STRONG if abs(level) == 2 else 1.0)

    def _numbers(self, pairs: Sequence[tuple[Answer, Answer]], asked: Sequence[Asked[Game]]) -> dict[str, Measured]:
        soft = self.weighting == "logprob"
        told = [_softly(one) if soft else one for one in asked]
        games = [one.value or Game(None) for one in told]
        matches = [
            Match(own.id, games[2 * i], games[2 * i + 1], len(answer_text(own)) - len(answer_text(other)))
            for i, (own, other) in enumerate(pairs)
        ]
        ids = [match.id for match in matches]
        each = [id for id in ids for _ in range(2)]
        sides = [game.side for game in games]
        won = [match.won(soft) for match in matches]
        consistent = [match.consistent for match in matches]
        weights = [match.weight for match in matches]
        numbers = {
            "win_rate": weighted_mean(won, ids, weights),
            "length_adjusted": length_adjusted(won, [match.longer for match in matches], ids, self.ridge, weights),
            "ties": weighted_mean([None if side is None else float(side == 0) for side in sides], each),
            "inconsistent": weighted_mean([None if same is None else float(not same) for same in consistent], ids),
            "position_bias": weighted_mean([float(side) if side else None for side in sides], each),
            **shares(told, each),
        }
        if soft:
            hard = [None if one.value is None else float(_chance(one) is None) for one in told]
            numbers["hard"] = weighted_mean(hard, each)
        return numbers


def matched(name: str, answers: Sequence[Answer], versus: str, others: Sequence[Answer]) -> list[tuple[Answer, Answer]]:
    """Every answer with one of the other model's to the same prompt; when that has fewer, they come round again.

    Raises `DataError` when it has none to a prompt.
    """
    found = by_prompt(versus, others)
    pairs = []
    for id, group in by_prompt(name, answers).items():
        if id not in found:
            raise DataError(f"{name} and {versus}: only {name} has an answer to prompt {id}")
        pairs += [(answer, found[id][i % len(found[id])]) for i, answer in enumerate(group)]
    return pairs


def _chance(asked: Asked[Game]) -> float | None:
    return odds(asked.completion.logprobs) if asked.completion.logprobs else None


def _softly(asked: Asked[Game]) -> Asked[Game]:
    """A judgement by the log-probabilities of 1 and 2; without them by its text."""
    if asked.failure is not None:
        return asked
    failure, reason, p = None, None, _chance(asked)
    if p is None:
        try:
            p = {"first": 1.0, "tie": 0.5, "second": 0.0}[read_verdict(asked.completion.text)]
        except Refused as problem:
            failure, reason = "refused", str(problem)
        except ValueError as problem:
            failure, reason = "unreadable", str(problem)
    value = None if failure else Game(p)
    return Asked(value, failure, asked.tries, asked.completion, reason)
