"""Prompts of VerInstruct with rules as Python source code."""

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
    """Column names of VerInstruct; the defaults are the names on the hub."""

    checkers: str = "checkers"
    """Column with the criteria, each with a mark: `[rule]` is checked by its source code, `[llm]` goes to the judge."""
    functions: str = "functions"
    """Column with the source code, one text for each criterion."""


@register("verinstruct")
class VerInstruct(CodedSet):
    """VerInstruct (Peng et al. 2025, "VerIF"), THU-KEG/VerInstruct: about 22,000 prompts; rules have Python source
    code.

    Columns: `id`, `prompt`, `checkers` and `functions`, lists of texts. A checker without a mark is soft if its source
    asks a language model. If a checker is only a name (`Desired_Writing_Style`), its text is the question in its source
    to the language model, found without running it, or else the name.
    """

    path: HubPath = "THU-KEG/VerInstruct"
    columns: VerInstructColumns = VerInstructColumns()

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        checkers = as_list(self.value(row, "checkers"), self.columns.checkers)
        functions = as_list(self.value(row, "functions"), self.columns.functions)
        return self.coded(checkers, functions, prompt)
