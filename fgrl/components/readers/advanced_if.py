"""Prompts of AdvancedIF with criteria that people wrote for a judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fgrl.data.hub import HubPath
from fgrl.data.row import BadRow, Row, short
from fgrl.data.rubrics.demand import Demand
from fgrl.data.rubrics.rubric_set import RubricColumns, RubricSet
from fgrl.data.turns import Prompt, as_prompt
from fgrl.data.values import as_texts, parsed
from fgrl.registry import register


class AdvancedIFColumns(RubricColumns):
    """Column names of AdvancedIF; the defaults are the names on the hub."""

    id: str | None = None
    prompt: str = "conversation_history"
    """Column with the conversation up to the prompt to answer: messages, also as JSON text."""
    metadata: str = "prompt_metadata"
    """Column with a mapping that contains `rubrics`, also as JSON text; `rubrics` is a list of texts, or its JSON."""
    kind: str | None = "benchmark_name"
    """Column with the group under which the prompt is counted."""


@register("advanced_if")
class AdvancedIF(RubricSet):
    """AdvancedIF (He et al. 2025), facebook/AdvancedIF: 1,645 prompts with rubrics that people wrote; a judge decides
    all criteria.

    Columns, all of them text: `conversation_history` (JSON messages, with an optional system turn first),
    `benchmark_name`, `prompt_metadata` (JSON with `rubrics`). The only split is `train`. For research only (CC BY-NC
    4.0).
    """

    path: HubPath = "facebook/AdvancedIF"
    columns: AdvancedIFColumns = AdvancedIFColumns()

    def prompt_of(self, row: Row) -> Prompt:
        column = self.columns.prompt
        return as_prompt(parsed(self.value(row, "prompt"), column), column)

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        column = self.columns.metadata
        metadata = parsed(self.value(row, "metadata"), column)
        if not isinstance(metadata, Mapping) or "rubrics" not in metadata:
            raise BadRow(f'"{column}" is {short(metadata)}: wants a mapping with rubrics')
        return [Demand(text, hard=False) for text in as_texts(metadata["rubrics"], f"{column}.rubrics")]

    def meta_of(self, row: Row) -> dict[str, Any]:
        return {} if self.columns.kind is None else {"kind": self.value(row, "kind")}
