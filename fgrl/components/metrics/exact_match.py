"""Is the answer literally one of the references?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import mean
from fgrl.evaluation.references import Referenced
from fgrl.evaluation.statistics import Measured
from fgrl.evaluation.wording import squad, triviaqa
from fgrl.registry import register

NORMALIZERS: dict[str, Callable[[str], str]] = {"squad": squad, "triviaqa": triviaqa, "none": str.strip}


@register("exact_match")
class ExactMatch(Referenced):
    """Share of answers that match one of their references, 0 to 1 (papers print percent)."""

    normalize: Literal["squad", "triviaqa", "none"] = "squad"
    """What is removed from both texts before they are compared. `squad`: case, punctuation, articles, repeated white space.
    `triviaqa`: the same, with punctuation as a space. `none`: only white space at the ends."""
    match: Literal["whole", "contains"] = "whole"
    """`whole`: the texts are equal. `contains`: the answer contains the reference as whole words (so not for
    languages that write no spaces between words)."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        return {"exact_match": mean(answers, self.best(answers, self.score))}

    def score(self, response: str, reference: str) -> float:
        """1 for a match, else 0. A reference that is empty after normalization matches only an answer that is empty, too."""
        normal = NORMALIZERS[self.normalize]
        answer, expected = normal(response), normal(reference)
        if self.match == "whole" or not expected:
            return float(answer == expected)
        return float(re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", answer) is not None)
