"""Prompts of VerInstruct, whose rules come as Python source."""

from __future__ import annotations

from fgrl.data.hub import HubPath
from fgrl.data.row import Row
from fgrl.data.rubrics.coded_set import CodedSet
from fgrl.data.rubrics.demand import Demand
from fgrl.data.rubrics.rubric_set import RubricColumns
from fgrl.data.turns import Prompt
from fgrl.data.values import as_list
from fgrl.registry import register


class VerInstructColumns(RubricColumns):
    """Which column holds what; the defaults are the hub's."""

    checkers: str = "checkers"
    """What is asked for, each with a mark: `[rule]` is checked by its source, `[llm]` goes to the judge."""
    functions: str = "functions"
    """The sources, one each."""


@register("verinstruct")
class VerInstruct(CodedSet):
    """VerInstruct (Peng et al. 2025, "VerIF"), THU-KEG/VerInstruct: about 22,000 prompts; rules come with Python
    source.

    Columns: `id`, `prompt`, `checkers` and `functions`, lists of texts. A checker without a mark is soft when its
    source asks a language model. Where a checker is a bare name (`Desired_Writing_Style`), its words are what its
    source asks the language model, found without running it, or else the name.
    """

    path: HubPath = "THU-KEG/VerInstruct"
    columns: VerInstructColumns = VerInstructColumns()

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        checkers = as_list(self.value(row, "checkers"), self.columns.checkers)
        functions = as_list(self.value(row, "functions"), self.columns.functions)
        return self.coded(checkers, functions, prompt)
