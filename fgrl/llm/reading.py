"""Reading a model's answer: fences, refusals, verdicts between two answers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal

Verdict = Literal["first", "second", "tie"]


class Refused(ValueError):
    """The model declined to answer. Counted apart from answers that cannot be read."""


_VERDICT = re.compile(r"""[\s"'`*\[({]*(?:(1|2)|(tie))[\s"'`*\])}.:!]*""", re.IGNORECASE)
_FENCE = re.compile(r"```[ \t]*[A-Za-z0-9_-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_DECLINE = re.compile(
    r"\b(?:I(?:'m| am| must| have to)?[ ,]*(?:sorry|apologi[sz]e|unable|not able|not comfortable|decline|refuse)\b"
    r"|I (?:can ?not|can't|won't|will not|would not|wouldn't)\b"
    r"|as an AI\b|sorry, (?:but )?I\b)",
    re.IGNORECASE,
)


def strip_fences(text: str) -> str:
    """What stands in the first fence (three backquotes) of an answer; the whole answer when there is none."""
    found = _FENCE.search(text)
    return (found[1] if found else text).strip()


def declines(text: str) -> bool:
    """Does an answer begin by declining to answer? (An English rule of thumb, on the first 200 characters.)"""
    return bool(_DECLINE.search(text.replace("\u2019", "'")[:200]))


def read_answer(text: str) -> str:
    """An answer without the white space around it. Raises ValueError for an empty one."""
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def read_verdict(text: str) -> Verdict:
    """The answer to "which of the two is better?": 1, 2 or tie, alone but for quotes, brackets, stars and full stops.

    Raises `Refused` for an answer that declines, ValueError for any other.
    """
    found = _VERDICT.fullmatch(text)
    if found:
        return "tie" if found[2] else "first" if found[1] == "1" else "second"
    if declines(text):
        raise Refused("it declines to choose")
    raise ValueError(f"{text.strip()[:80]!r} is none of 1, 2 and tie")


def odds(logprobs: Mapping[str, float], first: str = "1", second: str = "2") -> float | None:
    """P(first) / (P(first) + P(second)) of the answer's first token, from its most probable ones (nats).

    Tokens that differ by white space around them count together; one that is not listed counts 0. None when neither is.
    """
    chances = {name: sum(math.exp(value) for token, value in logprobs.items() if token.strip() == name)
               for name in (first, second)}  # fmt: skip
    total = chances[first] + chances[second]
    return chances[first] / total if total else None
