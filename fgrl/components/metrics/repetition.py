"""Do answers repeat words, or other answers?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Comparison, mean
from fgrl.evaluation.statistics import Measured
from fgrl.kinds import Meaning
from fgrl.registry import register
from fgrl.rules.text import WORD


@register("repetition")
class Repetition(Comparison):
    """Symptoms of a collapse that a likelihood does not show.

    `distinct_1`, `distinct_2`: different words (pairs of neighbouring words) / all of them, within an answer, mean over
    the answers that have any; 1 = no repetition. After distinct-n of Li et al. 2016 ("A Diversity-Promoting
    Objective Function for Neural Conversation Models"), which counts over a whole corpus. Case is ignored.
    `copied`: share of answers that are word for word an answer to another prompt, too.
    """

    purpose = "symptom"
    meanings = {
        "distinct_1": Meaning("share of different words within an answer", "higher"),
        "distinct_2": Meaning("share of different word pairs within an answer", "higher"),
        "copied": Meaning("share of answers that are also given to another prompt", "lower"),
    }

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        words = [[word.lower() for word in WORD.findall(answer.text)] for answer in answers]
        prompts: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for answer, own in zip(answers, words, strict=True):
            prompts[tuple(own)].add(answer.id)
        return {
            "distinct_1": mean(answers, [distinct(own, 1) for own in words]),
            "distinct_2": mean(answers, [distinct(own, 2) for own in words]),
            "copied": mean(answers, [float(len(prompts[tuple(own)]) > 1) for own in words]),
        }


def distinct(words: Sequence[str], n: int) -> float | None:
    """Different n-grams / n-grams; None when there is none."""
    grams = list(zip(*(words[start:] for start in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else None
