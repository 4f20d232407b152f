"""Claims that are acceptable to make, or not."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal

from fgrl.data.questions.context import ContextColumns
from fgrl.data.questions.question_set import QuestionSet
from fgrl.data.questions.source import Item, Source
from fgrl.data.row import BadRow, LeftOut, Row, short
from fgrl.feedback.templates import Prompt

YesOrNo = Literal["yes", "no"]
LabelMeaning = Literal["yes", "no", "drop"]


class ClaimColumns(ContextColumns):
    """Which column holds what; dots reach into nested ones."""

    claim: str = "claim"
    """The claim."""
    label: str = "label"
    """What people made of it."""


class ClaimSet(QuestionSet):
    """Claims, each with `yes` (factual and fair) or `no` for a reference."""

    MAIN: ClassVar[str] = "claim"

    columns: ClaimColumns = ClaimColumns()

    @abstractmethod
    def verdict(self, source: Source, row: Row) -> YesOrNo:
        """Return the verdict that the row's label means. Raises `LeftOut` where it means none, and `BadRow`."""

    def example(self) -> str:
        return "Somebody said: {claim}\nIs that a fair thing to say? {answer}"

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | {"label"}

    def item(self, source: Source, row: Row) -> Item:
        claim = source.text(row, "claim")
        verdict = self.verdict(source, row)
        return Item(claim, {"claim": claim}, [verdict], {"label": source.value(row, "label")})


class LabelledClaims(ClaimSet):
    """Claims whose label is one of a few names."""

    labels: dict[str, LabelMeaning] = {
        "SUPPORTS": "yes", "REFUTES": "no", "NOT_ENOUGH_INFO": "drop", "DISPUTED": "drop",
        "yes": "yes", "no": "no", "true": "yes", "false": "no",
    }  # fmt: skip
    """What each label means: `yes`, `no`, or `drop` (undecided: left out and counted). A label that is not here does
    not fit; a row without one is left out.
    """
    label_names: list[str] = []
    """What whole numbers stand for (0 for the first name), where the data does not define it itself."""

    def verdict(self, source: Source, row: Row) -> YesOrNo:
        value = source.value(row, "label")
        column = source.columns["label"]
        label = label_name(value, source.label_names.get(column) or self.label_names)
        if label is None:
            raise LeftOut("without a label")
        meanings = {name.casefold(): meaning for name, meaning in self.labels.items()}
        meaning = meanings.get(label.casefold())
        if meaning is None:
            raise BadRow(f'"{column}" is {short(value)}, which is not in `labels`; it has {", ".join(self.labels)}')
        if meaning == "drop":
            raise LeftOut(f"labelled {label!r}")
        return meaning


def label_name(value: Any, names: list[str]) -> str | None:
    """Return the name of a label: of a text itself, of a whole number the one in the list.

    None for what means nothing: null, NaN, an empty text, a negative number. A number beyond the list is its own name.
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return None if value < 0 else names[value] if value < len(names) else str(value)
    return str(value).strip() or None
