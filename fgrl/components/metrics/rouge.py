"""Overlap of words between an answer and a reference."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.base import lazy
from fgrl.base.errors import Requires
from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.references import Referenced
from fgrl.measuring.statistics import Measured
from fgrl.registry import register

rouge_scorer = lazy.load("rouge_score.rouge_scorer")

KINDS = ("rouge1", "rouge2", "rougeL")


@register("rouge")
class Rouge(Referenced):
    """F1 of shared words (`rouge1`), pairs of words (`rouge2`) and the longest common subsequence (`rougeL`), mean over
    answers (Lin 2004); the best reference for each of the three. 0 to 1; papers print percent.

    By Google's rouge-score package, whose words are runs of a-z and 0-9 after lower-casing: texts in other scripts
    share none.
    """

    meanings = {
        "rouge1": Meaning("words shared with the reference (ROUGE-1)", "higher"),
        "rouge2": Meaning("pairs of words shared with the reference (ROUGE-2)", "higher"),
        "rougeL": Meaning("longest common subsequence with the reference (ROUGE-L)", "higher"),
    }

    requires = Requires("rouge_score", "the metric rouge needs the package rouge-score", extra="metrics")

    stemmer: bool = False
    """Compare the stems of English words (Porter stemmer)."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        scorer = rouge_scorer.RougeScorer(list(KINDS), use_stemmer=self.stemmer)
        scores = [scorer.score_multi(self.usable(answer.references), answer.text) for answer in answers]
        return {kind: mean(answers, [float(score[kind].fmeasure) for score in scores]) for kind in KINDS}
