"""Words as IFEval counts them."""

from __future__ import annotations

import re

WORD = re.compile(r"\w+")


def count_words(text: str) -> int:
    r"""Runs of letters, digits and underscores (`\w+`), as IFEval counts: "don't" is two words, "well-known" two."""
    return sum(1 for _ in WORD.finditer(text))
