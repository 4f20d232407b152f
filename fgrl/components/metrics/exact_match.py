"""Share of answers that are literally one of the references."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from typing import Literal

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.references import Referenced
from fgrl.measuring.statistics import Measured
from fgrl.registry import register
from fgrl.types import Span

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETED = str.maketrans("", "", string.punctuation)
_SPACED = str.maketrans(dict.fromkeys(string.punctuation + "‘’´", " "))


def squad(text: str) -> str:
    """Normalize a text like SQuAD's evaluation (Rajpurkar et al. 2016): lower case, ASCII punctuation deleted, no
    articles, single spaces.
    """
    return _without_articles(text.lower().translate(_DELETED))


def triviaqa(text: str) -> str:
    """Normalize a text like TriviaQA's evaluation (Joshi et al. 2017): as `squad`, but punctuation (and ‘ ’ ´) becomes
    a space, so that `twenty-one` stays two words.
    """
    return _without_articles(text.lower().translate(_SPACED))


def _without_articles(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text).split())


NORMALIZERS: dict[str, Callable[[str], str]] = {"squad": squad, "triviaqa": triviaqa, "none": str.strip}


@register("exact_match")
class ExactMatch(Referenced):
    """Share of answers that match one of their references, 0 to 1 (papers print percent)."""

    meanings = {"exact_match": Meaning("share of answers that match a reference", "higher")}

    normalize: Literal["squad", "triviaqa", "none"] = "squad"
    """Normalization of both texts before the comparison. `squad`: remove case, punctuation, articles and repeated white
    space. `triviaqa`: as `squad`, but punctuation becomes a space. `none`: only remove white space at the ends.
    """
    match: Literal["whole", "contains"] = "whole"
    """Type of comparison. `whole`: the texts are equal. `contains`: the answer contains the reference as whole words
    (not suitable for languages without spaces between words).
    """

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        return {"exact_match": mean(answers, self.best(answers, self.score))}

    def verdict(self, answer: Answer) -> tuple[bool | None, list[Span]] | None:
        if not self.usable(answer.references):
            return None
        return bool(self.best([answer], self.score)[0]), []

    def score(self, response: str, reference: str) -> float:
        """Return 1 for a match, else 0. A reference that is empty after normalization matches only an answer that is
        empty, too.
        """
        normal = NORMALIZERS[self.normalize]
        answer, expected = normal(response), normal(reference)
        if self.match == "whole" or not expected:
            return float(answer == expected)
        return float(re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", answer) is not None)
