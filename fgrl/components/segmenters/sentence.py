"""Segments that end at punctuation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, PrivateAttr

from fgrl.base import lazy
from fgrl.kinds import Segmenter
from fgrl.registry import register
from fgrl.types import Segmentable

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy.load("torch")

# fmt: off
DELIMITERS = [
    ".", "!", "?", "\n", ";", "...", ",", ":",               # the paper's list (section 4.2)
    "…", "‥", "‼", "⁇", "⁈", "⁉", "‽", "\u2028", "\u2029",   # typographic forms of the same
    "。", "．", "｡", "！", "？", "；", "：", "，", "、", "､", "︒",  # Chinese, Japanese, Korean
    "؟", "؛", "،", "۔",                                      # Arabic, Persian, Urdu
    "।", "॥",                                                # Devanagari and related scripts
    "\u037e", "\u0387",                                      # Greek question mark and semicolon
    "։", "՝", "՜", "՞",                                      # Armenian
    "።", "፣", "፤", "፥", "፧",                                 # Ethiopic
    "။", "၊", "។", "៖", "།",                                 # Burmese, Khmer, Tibetan
]
# fmt: on
IN_NUMBERS = {".", ",", ":"}


@register("sentence")
class Sentence(Segmenter):
    """A segment ends with the token that completes a delimiter (the sentence rows of the segment paper's Table 1).

    A run of delimiters ends one segment, at its last: "...", "?!", and, across spaces, ". \\n". Like the paper's list,
    the default is literal: it also divides at the point of 3.14 and at the comma of 1,000 (see `keep_numbers`).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"text"})

    delimiters: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = DELIMITERS
    """Strings that end a segment. The default is the paper's list and its equivalents in other scripts."""
    keep_numbers: bool = False
    """Do not divide at a `.`, `,` or `:` between two digits."""

    _ends: re.Pattern[str] | None = PrivateAttr(None)

    def _segment_ends(self, text: str) -> list[int]:
        """Return the index after each run of delimiters."""
        if self._ends is None:

            def pattern(delimiter: str) -> str:
                literal = re.escape(delimiter)
                if self.keep_numbers and delimiter in IN_NUMBERS:
                    return rf"(?<!\d){literal}|{literal}(?!\d)"
                return literal

            choice = "|".join(pattern(delimiter) for delimiter in sorted(self.delimiters, key=len, reverse=True))
            self._ends = re.compile(rf"(?:{choice})(?:\s*(?:{choice}))*")
        return [match.end() for match in self._ends.finditer(text)]

    def starts(self, view: Segmentable) -> Tensor:
        """Return bool [B,T]: True at the token after each token that completes a run of delimiters.

        A run is completed by the last token that covers its last character. If several tokens make up one character,
        this is the token that finishes it. Raises ValueError if texts or offsets are missing or do not match.
        """
        if view.texts is None or view.offsets is None:
            raise ValueError("the sentence segmenter needs texts and token offsets, and this view has none")
        rows, width = view.mask.shape
        if len(view.texts) != rows or len(view.offsets) != rows:
            raise ValueError(f"{rows} responses, but {len(view.texts)} texts and {len(view.offsets)} rows of offsets")
        lengths = (view.mask & ~view.eos).sum(dim=1).tolist()
        starts = torch.zeros(rows, width, dtype=torch.bool)
        for row, (text, offsets, length) in enumerate(zip(view.texts, view.offsets, lengths, strict=True)):
            if len(offsets) < length:
                raise ValueError(f"response {row} has {length} tokens, but offsets for {len(offsets)}")
            for token in self._completing(text, offsets[:width]):
                if token + 1 < width:
                    starts[row, token + 1] = True
        return starts.to(view.mask.device) & view.mask

    def _completing(self, text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
        """Return the tokens that complete a run of delimiters."""
        last: dict[int, int] = {}
        for token, (start, end) in enumerate(offsets):
            for character in range(start, end):
                last[character] = token
        return [last[end - 1] for end in self._segment_ends(text) if end - 1 in last]
