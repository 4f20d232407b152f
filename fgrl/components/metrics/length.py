"""Length of answers, and the shares of empty and finished answers."""

from __future__ import annotations

from collections.abc import Sequence

from fgrl.feedback.rules.text import count_words
from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import Comparison, mean
from fgrl.measuring.statistics import Measured
from fgrl.registry import register


@register("length")
class Length(Comparison):
    r"""Words (runs of `\w+`), characters and tokens per answer, the shares of empty and of finished answers.

    Answers that were given as text have no tokens, and it is not known whether they finished: both are missing.
    """

    purpose = "symptom"
    meanings = {
        "words": Meaning("length in words"),
        "characters": Meaning("length in characters"),
        "tokens": Meaning("length in tokens"),
        "empty": Meaning("share of empty answers", "lower"),
        "finished": Meaning("share of answers that end before the length limit", "higher"),
    }

    version = 2

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        return {
            "words": mean(answers, [count_words(answer.text) for answer in answers]),
            "characters": mean(answers, [len(answer.text) for answer in answers]),
            "tokens": mean(answers, [None if answer.given else answer.n_tokens for answer in answers]),
            "empty": mean(answers, [not answer.text.strip() for answer in answers]),
            "finished": mean(answers, [answer.response.finished for answer in answers]),
        }
