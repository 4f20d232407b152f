"""Which references are answers: labels such as "No Answer Present." are none, and nothing is scored against them."""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence


def answers_among(given: str | Sequence[str] | None, refusals: Collection[str]) -> list[str]:
    """Return the references that are not blank and none of the refusals, which are compared without case, punctuation
    and repeated spaces.
    """
    references = [given] if isinstance(given, str) else list(given or [])
    refused = {plain(refusal) for refusal in refusals} - {""}
    return [text for text in references if text.strip() and plain(text) not in refused]


def plain(text: str) -> str:
    """Lower case, without ASCII punctuation, single spaces."""
    return " ".join(text.casefold().translate(str.maketrans("", "", string.punctuation)).split())
