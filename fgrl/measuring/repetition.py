"""Repetitions in answers: of their own words, of their prompt, and of answers to other prompts. Case is ignored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fgrl.feedback.rules.text import WORD
from fgrl.measuring.answer import Answer


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.lower() for word in WORD.findall(text)]


def copied_share(answer: Answer, size: int) -> float | None:
    """Return the share of an answer's words in runs of `size` words that occur in the same order in the messages of its
    prompt; None for an answer without words.
    """
    own, asked = words_of(answer.text), asked_words(answer)
    runs = {tuple(asked[start : start + size]) for start in range(len(asked) - size + 1)}
    copied = [False] * len(own)
    for start in range(len(own) - size + 1):
        if tuple(own[start : start + size]) in runs:
            copied[start : start + size] = [True] * size
    return sum(copied) / len(own) if own else None


def asked_words(answer: Answer) -> list[str]:
    """Return the words of all messages of an answer's prompt, in lower case."""
    return [word for message in answer.chat for word in words_of(message.content)]


def given_to_others(answers: Sequence[Answer]) -> list[float]:
    """Return 1 for an answer that is word for word also the answer to another prompt, else 0."""
    prompts: dict[tuple[str, ...], set[str]] = defaultdict(set)
    texts = [tuple(words_of(answer.text)) for answer in answers]
    for answer, text in zip(answers, texts, strict=True):
        prompts[text].add(answer.id)
    return [float(len(prompts[text]) > 1) for text in texts]


def distinct(words: Sequence[str], n: int) -> float | None:
    """Return different n-grams / n-grams; None if there are none."""
    grams = list(zip(*(words[start:] for start in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else None
