"""Detection of references that are no answers: nothing is scored against labels such as "No Answer Present."."""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence


def answers_among(given: str | Sequence[str] | None, refusals: Collection[str]) -> list[str]:
    """Return the references that are neither blank nor refusals. Refusals are compared without case, punctuation and
    repeated spaces.
    """
    references = [given] if isinstance(given, str) else list(given or [])
    refused = {plain(refusal) for refusal in refusals} - {""}
    return [text for text in references if text.strip() and plain(text) not in refused]


def plain(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation, with single spaces."""
    return " ".join(text.casefold().translate(str.maketrans("", "", string.punctuation)).split())
