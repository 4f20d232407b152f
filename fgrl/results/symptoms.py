"""Side effects of a training that show in the answers themselves: their length, what they repeat, how they end.

They are computed from `answers.jsonl`, so that they are known whatever metrics the recipe names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fgrl.evaluation import statistics
from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import mean_per_token
from fgrl.evaluation.repetition import asked_words, copied_share, distinct, given_to_others, words_of
from fgrl.evaluation.statistics import Estimate
from fgrl.rules.text import count_words

RESAMPLES = 1000
"""Draws of the bootstrap: enough for the two digits that are shown."""
COPIED_RUN = 4
"""Words in a row that the prompt has too, before they count as copied: shorter runs occur in every answer on the topic.
"""
SHORT_PROMPT = 60
"""Words. One copied run in an answer to such a prompt repeats an instruction; a longer prompt holds a document or a
program, which answers may quote.
"""
MOSTLY = 0.5
"""An answer to a longer prompt repeats it when at least this share of its words is copied."""


@dataclass(frozen=True)
class Compared:
    """One number before and after training, and the paired difference."""

    before: Estimate
    after: Estimate
    difference: Estimate


Symptom = Callable[[Sequence[Answer]], list[float | None]]


def words(answers: Sequence[Answer]) -> list[float | None]:
    """Words of each answer."""
    return [float(count_words(answer.text)) for answer in answers]


def empty(answers: Sequence[Answer]) -> list[float | None]:
    """1 for an answer without text."""
    return [float(not answer.text.strip()) for answer in answers]


def cut_off(answers: Sequence[Answer]) -> list[float | None]:
    """1 for an answer that the length limit cut; None where that is not known."""
    return [None if answer.response.finished is None else float(not answer.response.finished) for answer in answers]


def repeats_prompt(answers: Sequence[Answer]) -> list[float | None]:
    """1 for an answer that repeats a passage of its prompt; None for an empty one."""
    shares = [copied_share(answer, COPIED_RUN) for answer in answers]
    short = [len(asked_words(answer)) <= SHORT_PROMPT for answer in answers]
    return [
        None if share is None else float(share > 0 if brief else share >= MOSTLY)
        for share, brief in zip(shares, short, strict=True)
    ]


def same_for_others(answers: Sequence[Answer]) -> list[float | None]:
    """1 for an answer that is word for word the answer to another prompt, too; None for an empty one."""
    given = zip(answers, given_to_others(answers), strict=True)
    return [value if words_of(answer.text) else None for answer, value in given]


def repeated_pairs(answers: Sequence[Answer]) -> list[float | None]:
    """Share of an answer's pairs of neighbouring words that it has said before; None without a pair."""
    shares = [distinct(words_of(answer.text), 2) for answer in answers]
    return [None if share is None else 1 - share for share in shares]


@dataclass
class Symptoms:
    """The answers of a model before and after training."""

    before: Sequence[Answer]
    after: Sequence[Answer]
    nats: tuple[float, float] | None = None
    """Nats per token under a model that an evaluation's metric names, before and after training; None: not measured."""
    _known: dict[str, Compared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Differences are paired: only prompts that both models answered count."""
        shared = {answer.id for answer in self.before} & {answer.id for answer in self.after}
        self.before = [answer for answer in self.before if answer.id in shared]
        self.after = [answer for answer in self.after if answer.id in shared]

    def compare(self, symptom: Symptom) -> Compared:
        name = symptom.__name__
        if name not in self._known:
            sides = [
                statistics.weighted_mean(symptom(answers), [answer.id for answer in answers])
                for answers in (self.before, self.after)
            ]
            before, after = (Estimate(mean=statistics.value_of(side), n=side.n) for side in sides)
            change = statistics.difference(sides[1], sides[0], resamples=RESAMPLES)
            self._known[name] = Compared(before, after, change)
        return self._known[name]

    def kl_per_token(self) -> float | None:
        """Return the trained model's KL to the reference, nats per token; None where it was not recorded."""
        return _per_token(self.after, [answer.kl for answer in self.after])

    def cost(self) -> tuple[float, float] | None:
        """Return what answers cost under a model that training did not change, before and after it, in nats per token:
        as a metric measured it, or else under the reference; None where neither was recorded.
        """
        sides = [_per_token(own, [answer.ref_logp for answer in own]) for own in (self.before, self.after)]
        if self.nats is not None or sides[0] is None or sides[1] is None:
            return self.nats
        return -sides[0], -sides[1]

    def example(self) -> tuple[Answer, Answer]:
        """Return the answers before and after training to one prompt: that of the middle answer by its length."""
        after = sorted(self.after, key=lambda answer: len(answer.text))[len(self.after) // 2]
        return next(answer for answer in self.before if answer.id == after.id), after


def _per_token(answers: Sequence[Answer], sums: Sequence[float | None]) -> float | None:
    """Return the mean over all tokens of the answers that have a sum; None where none has."""
    return statistics.value_of(mean_per_token(answers, sums))
