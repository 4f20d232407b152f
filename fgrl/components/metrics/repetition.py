"""Repetition of words within answers, and of answers among each other."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean
from fgrl.measuring.repetition import copied_share, distinct, given_to_others, words_of
from fgrl.measuring.statistics import Measured
from fgrl.registry import register


@register("repetition")
class Repetition(Comparison):
    """Symptoms of a collapse that a likelihood does not show.

    `distinct_1`, `distinct_2`: different words (pairs of neighbouring words) / all of them, within an answer, mean over
    the answers that have any; 1 = no repetition. After distinct-n of Li et al. 2016 ("A Diversity-Promoting
    Objective Function for Neural Conversation Models"), which counts over a whole corpus. Case is ignored.
    `copied`: share of answers that are word for word an answer to another prompt, too.
    `prompt`: share of the answers with words that repeat a passage of their own prompt (with `prompt_words`).
    """

    purpose = "symptom"
    meanings = {
        "distinct_1": Meaning("share of different words within an answer", "higher"),
        "distinct_2": Meaning("share of different word pairs within an answer", "higher"),
        "copied": Meaning("share of answers that are also given to another prompt", "lower"),
        "prompt": Meaning("share of answers that repeat a passage of their prompt", "lower"),
    }

    prompt_words: int | None = Field(None, ge=1)
    """Number of consecutive words in a passage for the measure `prompt`, for example 8. null does not measure it."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        words = [words_of(answer.text) for answer in answers]
        measured = {
            "distinct_1": mean(answers, [distinct(own, 1) for own in words]),
            "distinct_2": mean(answers, [distinct(own, 2) for own in words]),
            "copied": mean(answers, given_to_others(answers)),
        }
        if self.prompt_words is not None:
            shares = [copied_share(answer, self.prompt_words) for answer in answers]
            measured["prompt"] = mean(answers, [None if share is None else float(share > 0) for share in shares])
        return measured
