"""Reading a model's answer: fences, refusals, one word of a list, labels in brackets, probabilities of a first token."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal, TypeVar

V = TypeVar("V")

Verdict = Literal["first", "second", "tie"]


class Refused(ValueError):
    """Error for an answer in which the model declined to answer. Counted separately from unparseable answers."""


_FENCE = re.compile(r"```[ \t]*[A-Za-z0-9_-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_DECLINE = re.compile(
    r"\b(?:I(?:'m| am| must| have to)?[ ,]*(?:sorry|apologi[sz]e|unable|not able|not comfortable|decline|refuse)\b"
    r"|I (?:can ?not|can't|won't|will not|would not|wouldn't)\b"
    r"|as an AI\b|sorry, (?:but )?I\b)",
    re.IGNORECASE,
)


def strip_fences(text: str) -> str:
    """Return the text inside the first fence (three backquotes) of an answer; the whole answer when it has none."""
    fence = _FENCE.search(text)
    return (fence[1] if fence else text).strip()


def declines(text: str) -> bool:
    """Return True if an answer begins by declining to answer: an English heuristic on the first 200 characters."""
    return bool(_DECLINE.search(text.replace("\u2019", "'")[:200]))


def read_answer(text: str) -> str:
    """Return an answer without the white space around it. Raises ValueError for an empty one."""
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def read_verdict(text: str) -> Verdict:
    """Return the answer to "which of the two is better?": 1, 2 or tie, in any case. Only quotes, brackets and asterisks
    may stand around it, and full stops, colons and exclamation marks after it.

    Raises `Refused` for an answer that declines, ValueError for any other.
    """
    return _read_word(text, _VERDICTS, "it declines to choose", "none of 1, 2 and tie")


def read_yes_no(text: str) -> bool:
    """Return True for YES and False for NO, in any case. Only the signs that `read_verdict` allows may stand around the
    word.

    Raises `Refused` for an answer that declines, ValueError for any other.
    """
    return _read_word(text, _YES_NO, "it declines to judge", "neither YES nor NO alone")


def _read_word(text: str, meanings: Mapping[str, V], declined: str, wanted: str) -> V:
    match = _ALONE.fullmatch(text)
    word = match["word"].lower() if match else ""
    if word in meanings:
        return meanings[word]
    if declines(text):
        raise Refused(declined)
    raise ValueError(f"{text.strip()[:80]!r} is {wanted}")


Scale = Literal[3, 5]
LABELS: dict[Scale, dict[str, int]] = {
    3: {"1": 1, "tie": 0, "2": -1},
    5: {"1>>2": 2, "1>2": 1, "1=2": 0, "2>1": -1, "2>>1": -2},
}
"""Labels of each scale, and how much better the answer shown first is by each of them."""


def read_label(text: str, scale: Scale = 3) -> int:
    """Return how much better the answer shown first is: -2 to 2, by the one label in double brackets, as in `[[1]]`.

    On the scale of three, the answer may also be only 1, 2 or tie. A label that occurs twice is one label; two
    different labels count as none.

    Raises `Refused` for an answer without a label that declines to judge, ValueError for any other.
    """
    labels = {label.lower().replace(" ", "") for label in bracketed(text)}
    known = LABELS[scale]
    if len(labels) == 1 and (label := next(iter(labels))) in known:
        return known[label]
    wanted = ", ".join(f"[[{label}]]" for label in known)
    if labels:
        given = ", ".join(f"[[{label}]]" for label in sorted(labels))
        raise ValueError(f"it says {given}: wants one of {wanted}, and no other")
    if scale == 3:
        return {"first": 1, "tie": 0, "second": -1}[read_verdict(text)]
    if declines(text):
        raise Refused("it declines to judge")
    raise ValueError(f"there is no verdict in it: wants one of {wanted} at its end")


def bracketed(text: str) -> set[str]:
    """Return the texts in double brackets, as `7` in `[[7]]`."""
    return set(_BRACKETED.findall(text))


def odds(logprobs: Mapping[str, float] | None, first: str = "1", second: str = "2") -> float | None:
    """Return P(first) / (P(first) + P(second)) of the answer's first token, from its most probable tokens (nats).

    Tokens that differ only by white space around them count together; a token that is not listed counts 0. None if
    neither is listed, or if nothing is known.
    """
    logprobs = logprobs or {}
    best = max(logprobs.values(), default=0.0)
    chances = {name: sum(math.exp(value - best) for token, value in logprobs.items() if token.strip() == name)
               for name in (first, second)}  # fmt: skip
    total = chances[first] + chances[second]
    return chances[first] / total if total else None


_BRACKETED = re.compile(r"\[\[\s*([^\[\]]*?)\s*\]\]")
_VERDICTS: dict[str, Verdict] = {"1": "first", "2": "second", "tie": "tie"}
_YES_NO = {"yes": True, "no": False}
_ALONE = re.compile(
    r"""[\s"'`*\[({\u2018\u201c]*(?P<word>[a-z0-9]+)[\s"'`*\])}\u2019\u201d.:!]*""", re.IGNORECASE | re.ASCII
)
"""A word in ASCII letters, so that letters of another script are not taken for it, and the signs that may stand around
it.
"""
