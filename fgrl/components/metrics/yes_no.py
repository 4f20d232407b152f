"""Accuracy of yes/no answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from fgrl.base.errors import DataError
from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.references import Referenced
from fgrl.measuring.statistics import Measured, of_sums
from fgrl.registry import register
from fgrl.types import Span

Verdict = Literal["yes", "no"]
F1 = {"top": (2, 0, 0), "bottom": (2, 1, 1)}
"""Weights of TP, FP and FN in the numerator and in the denominator."""

_MARKUP = re.compile(r"<[^<>]*>")
_WORD = re.compile(r"[^\W_]+")


@register("yes_no")
class YesNo(Referenced):
    """`accuracy` and `f1` of yes/no answers (RLA, Table 3), and the share of answers that are neither (`unparsed`); 0
    to 1, papers print percent.

    The first word decides, after markup and punctuation: `**No**, because ...` is a no. References are read the same
    way and must be a yes or a no. F1 of the class `positive` is 2 TP / (2 TP + FP + FN); its interval recomputes it for
    each resample of prompts.
    """

    meanings = {
        "unparsed": Meaning("share of answers that are neither yes nor no", "lower"),
        "*": Meaning("{number} of the yes/no answers", "higher"),
    }

    positive: Verdict = "no"
    """Positive class of F1. UniLC uses `no` (REFUTES). RLA does not specify it, but only `no` fits its Climate-FEVER:
    an accuracy of 77.40 with an F1 of 58.24 means that 62% are right and not of the class, and SUPPORTS are 654 of 907.
    """
    unparsed: Literal["wrong", "missing"] = "wrong"
    """Treatment of an answer that is neither yes nor no. `wrong`: it counts as neither class, so it lowers the
    accuracy, and F1 if the reference is the positive class: not answering is the model's failure. `missing`: it is left
    out of both.
    """

    def verdict(self, answer: Answer) -> tuple[bool | None, list[Span]] | None:
        return (self._right(answer), []) if self.usable(answer.references) else None

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        verdicts = [verdict(answer.text) for answer in answers]
        right: list[float | None] = []
        counts: list[tuple[int, int, int] | None] = []
        for given, answer in zip(verdicts, answers, strict=True):
            is_right = self._right(answer)
            right.append(None if is_right is None else float(is_right))
            counts.append(None if is_right is None else self._counts(given, self._expected(answer)))
        return {
            "accuracy": mean(answers, right),
            "f1": of_sums(counts, [answer.id for answer in answers], parameters=F1),
            "unparsed": mean(answers, [float(given is None) for given in verdicts]),
        }

    def _right(self, answer: Answer) -> bool | None:
        """Return whether an answer is right; None for an answer that is neither yes nor no if such answers are left
        out.
        """
        given, expected = verdict(answer.text), self._expected(answer)
        return None if given is None and self.unparsed == "missing" else given == expected

    def _expected(self, answer: Answer) -> Verdict:
        """Return the references' verdict. Raise `DataError` if there is none, or if they disagree."""
        references = self.usable(answer.references)
        (first, *others) = {verdict(reference) for reference in references}
        if others or first is None:
            raise DataError(
                f"{self.called}: the reference of prompt {answer.id!r} is {' and '.join(map(repr, references))}, which is "
                "neither yes nor no: point `columns: {reference: ...}` at a column that says yes or no"
            )
        return first

    def _counts(self, given: Verdict | None, expected: Verdict) -> tuple[int, int, int]:
        """Return TP, FP and FN of one answer."""
        predicted, actual = given == self.positive, expected == self.positive
        return (int(predicted and actual), int(predicted and not actual), int(actual and not predicted))


def verdict(text: str) -> Verdict | None:
    """Return the first word if it is yes or no; else None."""
    match = _WORD.search(_MARKUP.sub(" ", text))
    word = match[0].lower() if match else ""
    return "yes" if word == "yes" else "no" if word == "no" else None
