"""Prompts of MulDimIF with criteria as sentences with a category."""

from __future__ import annotations

from typing import Any

from fgrl.data.hub import HubPath
from fgrl.data.row import Row
from fgrl.data.rubrics.demand import Demand
from fgrl.data.rubrics.muldimif import constraints
from fgrl.data.rubrics.rubric_set import RubricColumns, RubricSet
from fgrl.data.turns import Prompt, as_one_text
from fgrl.registry import register


class MulDimIFColumns(RubricColumns):
    """Column names of MulDimIF; the defaults are the names on the hub."""

    prompt: str = "conversations"
    constraints: str = "constraints"
    """Column with the criteria, [category, kind, sentence] each."""


@register("muldimif")
class MulDimIF(RubricSet):
    """MulDimIF (Ye et al. 2025), Junjie-Ye/MulDimIF: 7,906 prompts to train on and 1,200 to test.

    Columns: `id`, `conversations` (messages without an answer), `constraints` ([category, kind, sentence] each),
    `constraint_pattern`. The authors check every constraint with programs that extract numbers and words from its
    sentence. Here only constraints that can be parsed with certainty become rules (`fgrl.data.rubrics.muldimif`); the
    others go to the judge and are counted by category.
    """

    version = 3

    path: HubPath = "Junjie-Ye/MulDimIF"
    columns: MulDimIFColumns = MulDimIFColumns()

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        return constraints(self.value(row, "constraints"), as_one_text(prompt), self.judged)

    def meta_of(self, row: Row) -> dict[str, Any]:
        return {"constraint_pattern": row["constraint_pattern"]} if "constraint_pattern" in row else {}
