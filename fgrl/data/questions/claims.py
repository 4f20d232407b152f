"""Claims that are acceptable or not."""

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
    """Names of the columns; dots reach into nested columns."""

    claim: str = "claim"
    """Column with the claim."""
    label: str = "label"
    """Column with the label that people gave the claim."""


class ClaimSet(QuestionSet):
    """Reader of claims, each with `yes` (factual and fair) or `no` as its reference."""

    MAIN: ClassVar[str] = "claim"

    columns: ClaimColumns = ClaimColumns()

    @abstractmethod
    def verdict(self, source: Source, row: Row) -> YesOrNo:
        """Return the verdict that the row's label means. Raises `LeftOut` if it means no verdict, and `BadRow`."""

    def example(self) -> str:
        return "Somebody said: {claim}\nIs that a fair thing to say? {answer}"

    def needed(self, prompt: Prompt) -> set[str]:
        return super().needed(prompt) | {"label"}

    def item(self, source: Source, row: Row) -> Item:
        claim = source.text(row, "claim")
        verdict = self.verdict(source, row)
        return Item(claim, {"claim": claim}, [verdict], {"label": source.value(row, "label")})


class LabelledClaims(ClaimSet):
    """Reader of claims whose label is one of a few names."""

    labels: dict[str, LabelMeaning] = {
        "SUPPORTS": "yes", "REFUTES": "no", "NOT_ENOUGH_INFO": "drop", "DISPUTED": "drop",
        "yes": "yes", "no": "no", "true": "yes", "false": "no",
    }  # fmt: skip
    """Meaning of each label: `yes`, `no`, or `drop` (undecided: left out and counted). Any other label makes a bad row;
    a row without a label is left out.
    """
    label_names: list[str] = []
    """Names of labels that are whole numbers (0 for the first name), if the data does not define them itself."""

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
    """Return the name of a label: a text is its own name, a whole number has a name in the list. None for a value
    without a meaning: null, NaN, an empty text, a negative number. A number beyond the list is its own name.
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
