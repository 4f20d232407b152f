"""Labels for every word: the dense baseline of Text2Grad (appendix I.1, "dense token reward")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fgrl.feedback import text_units
from fgrl.feedback.rules.text import CharRange
from fgrl.feedback.unit_labels import UnitLabeller
from fgrl.registry import register


@register("dense_token")
class DenseToken(UnitLabeller):
    """A language model labels every word of a response: 1 good, -1 poor, 0 neither. Each labelled word is a separate
    span.

    Words are separated by white space, so the labels do not depend on a tokenizer. Spans become rewards of the policy's
    tokens later. The prompt file contains {units}, the words with their numbers, and may contain {count}, {prompt},
    {response}, {reference}, {tests} and {outcome}: `prompts/dense_labels.txt`. An answer without exactly one label for
    each word is requested again, and finally missing.
    """

    version = 2

    allowed: ClassVar[tuple[int, ...]] = (1, 0, -1)

    neutral: bool = False
    """Also keep the spans of words with label 0. Without them, words without a span are neutral."""

    def divide(self, text: str) -> Sequence[CharRange]:
        return text_units.words(text)

    def keeps(self, label: int) -> bool:
        return self.neutral or label != 0
