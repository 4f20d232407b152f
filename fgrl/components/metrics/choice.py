"""Accuracy of answers that name choices by their numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from fgrl.base.errors import DataError
from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.references import Referenced
from fgrl.measuring.statistics import Measured
from fgrl.registry import register
from fgrl.types import Span

_LIST = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"(?<![\w-])(?<!\d\.)\d{1,6}(?!\w|\.\d)")


@register("choice")
class Choice(Referenced):
    """Scores of multiple-choice questions that a model answers in words, after the prompts of RLA's appendix D; 0 to 1.

    These differ from TruthfulQA's MC1 and MC2, which compare the probabilities that a model gives to the choices. For
    MC1 and MC2 use `truthfulqa_mc1` and `truthfulqa_mc2` of a stage `lm_eval`.

    `answers: one` (the prompt of MC1): `accuracy`, the share of answers whose first number is right. `answers: several`
    (the prompt of MC2, which asks for a list such as `[1, 3]`): the named set against the right one, `f1`, `precision`
    (what MC2 would be if a model spread its probability evenly over the choices that it names), `recall`, and `exact`,
    the share of sets that are equal; the paper does not specify how it scored lists. `unparsed` is the share of answers
    without a number. References are numbers or lists of them; those of one prompt are taken together.
    """

    meanings = {
        "unparsed": Meaning("share of answers without a choice", "lower"),
        "*": Meaning("{number} of the choices", "higher"),
    }

    answers: Literal["one", "several"] = "one"
    """Number of choices that the prompt asks for."""
    unparsed: Literal["wrong", "missing"] = "wrong"
    """Treatment of an answer without a number: it counts as `wrong` (0 in every score), or is left out (`missing`)."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        columns: dict[str, list[float | None]] = {name: [] for name in self._names()}
        for answer in answers:
            scores = self._scores(answer)
            for name, column in columns.items():
                column.append(scores.get(name))
        return {name: mean(answers, column) for name, column in columns.items()}

    def verdict(self, answer: Answer) -> tuple[bool | None, list[Span]] | None:
        if not self.usable(answer.references):
            return None
        right = self._scores(answer).get("accuracy" if self.answers == "one" else "exact")
        return (None if right is None else right == 1), []

    def _names(self) -> tuple[str, ...]:
        return ("accuracy", "unparsed") if self.answers == "one" else ("f1", "precision", "recall", "exact", "unparsed")

    def _scores(self, answer: Answer) -> dict[str, float]:
        """Return the scores of an answer, without missing ones."""
        references = self.usable(answer.references)
        right = {number for reference in references for number in listed(reference)}
        if not right:
            raise DataError(
                f"{self.called}: the reference of prompt {answer.id!r} is {references[0]!r}, which names "
                "no number of a choice: point `columns: {reference: ...}` at the numbers of the right choices"
            )
        named = first(answer.text) if self.answers == "one" else set(listed(answer.text))
        if not named:
            return {"unparsed": 1.0} | ({} if self.unparsed == "missing" else dict.fromkeys(self._names()[:-1], 0.0))
        hits = len(named & right)
        scores = {
            "accuracy": float(hits > 0),
            "f1": 2 * hits / (len(named) + len(right)),
            "precision": hits / len(named),
            "recall": hits / len(right),
            "exact": float(named == right),
        }
        return {"unparsed": 0.0} | scores


def first(text: str) -> set[int]:
    """Return a set with the first number; an empty set if there is no number."""
    match = _NUMBER.search(text)
    return {int(match[0])} if match else set()


def listed(text: str) -> list[int]:
    """Return the numbers in the first `[...]` that contains any, else in the first line that contains any. Nothing is
    evaluated as code.
    """
    for part in [*_LIST.findall(text), *text.splitlines()]:
        if numbers := _NUMBER.findall(part):
            return [int(number) for number in numbers]
    return []
