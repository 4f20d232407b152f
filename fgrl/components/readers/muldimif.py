"""Prompts of MulDimIF, whose criteria are sentences with a category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fgrl.data.columns import BadRow, Row, short
from fgrl.data.muldimif_checks import check_of
from fgrl.data.rubric_set import Demand, Prompt, RubricColumns, RubricSet, instruction, listed, together
from fgrl.registry import register


class MulDimIFColumns(RubricColumns):
    """Which column holds what; the defaults are the hub's."""

    prompt: str = "conversations"
    """The prompt: text, or messages."""
    constraints: str = "constraints"
    """The criteria, [category, kind, sentence] each."""


@register("muldimif")
class MulDimIF(RubricSet):
    """MulDimIF (Ye et al. 2025), Junjie-Ye/MulDimIF: 7,906 prompts to train on and 1,200 to test.

    Columns: `id`, `conversations` (messages without an answer), `constraints` ([category, kind, sentence] each),
    `constraint_pattern`. The authors check every constraint with programs that look for numbers and words in its sentence;
    here those that are simple enough to be sure of become rules (`fgrl.data.muldimif_checks`), the others go to the
    judge and are counted by category.
    """

    path: str = "Junjie-Ye/MulDimIF"
    """Hub id; or a folder; or `json`, `parquet`, `csv` with `files`."""
    columns: MulDimIFColumns = MulDimIFColumns()
    """Which column holds what, where the hub's names do not fit."""

    def roles(self) -> dict[str, str]:
        return super().roles() | {"constraints": self.columns.constraints}

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        return constraints(self.value(row, "constraints"), instruction(prompt), self.judged)

    def more(self, row: Row) -> dict[str, Any]:
        return {"constraint_pattern": row["constraint_pattern"]} if "constraint_pattern" in row else {}


def constraints(
    value: Any, prompt: str, judged: Sequence[str] = (), texts: Sequence[str] | None = None
) -> list[Demand]:
    """Constraints [category, kind, sentence] as demands; counted as category_kind. Raises `BadRow`.

    texts: the same in other words, where the data has them (HiR-16K).
    """
    found = listed(value, "constraints")
    if texts is not None:
        together(criteria=texts, constraints=found)
    demands = []
    for place, one in enumerate(found):
        if (
            not isinstance(one, Sequence)
            or len(one) != 3
            or not all(isinstance(part, str) and part.strip() for part in one)
        ):
            raise BadRow(f"constraint {short(one)}: wants [category, kind, sentence]")
        kind = f"{one[0]}_{one[1]}"
        check = None if kind in judged else check_of(one, prompt)
        demands.append(Demand(one[2].strip() if texts is None else texts[place], check, kind))
    return demands
