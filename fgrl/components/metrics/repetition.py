"""Do answers repeat words, or other answers?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from fgrl.evaluation.answer import Answer
from fgrl.evaluation.comparison import Comparison, mean
from fgrl.evaluation.statistics import Measured
from fgrl.kinds import Meaning
from fgrl.registry import KeyedUnless, register
from fgrl.rules.text import WORD


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

    prompt_words: Annotated[int | None, KeyedUnless(None)] = Field(None, ge=1)
    """Also measure `prompt`: a passage is this many words in the same order, as 8. null does not measure it."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        words = [[word.lower() for word in WORD.findall(answer.text)] for answer in answers]
        prompts: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for answer, own in zip(answers, words, strict=True):
            prompts[tuple(own)].add(answer.id)
        measured = {
            "distinct_1": mean(answers, [distinct(own, 1) for own in words]),
            "distinct_2": mean(answers, [distinct(own, 2) for own in words]),
            "copied": mean(answers, [float(len(prompts[tuple(own)]) > 1) for own in words]),
        }
        if self.prompt_words is not None:
            size = self.prompt_words
            measured["prompt"] = mean(
                answers, [repeats(own, asked_words(answer), size) for answer, own in zip(answers, words, strict=True)]
            )
        return measured


def asked_words(answer: Answer) -> list[str]:
    """Return the words of all messages of an answer's prompt, in lower case."""
    return [word.lower() for message in answer.chat for word in WORD.findall(message.content)]


def repeats(own: Sequence[str], asked: Sequence[str], size: int) -> float | None:
    """1 where `size` words in a row of `own` are in `asked`, else 0; None for an answer without words."""
    passages = {tuple(asked[start : start + size]) for start in range(len(asked) - size + 1)}
    return float(any(tuple(own[start : start + size]) in passages for start in range(len(own)))) if own else None


def distinct(words: Sequence[str], n: int) -> float | None:
    """Different n-grams / n-grams; None when there is none."""
    grams = list(zip(*(words[start:] for start in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else None
