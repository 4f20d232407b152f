"""Prompts of HiR-16K with criteria from four sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fgrl.data.hub import HubPath
from fgrl.data.row import BadRow, Row, short
from fgrl.data.rubrics.coded_set import CodedSet
from fgrl.data.rubrics.demand import Demand, Tally
from fgrl.data.rubrics.muldimif import constraints
from fgrl.data.rubrics.rubric_set import RubricColumns
from fgrl.data.turns import Prompt, as_one_text, as_prompt
from fgrl.data.values import as_list, as_texts, check_lengths, parsed
from fgrl.registry import register


class HirColumns(RubricColumns):
    """Column names of HiR-16K; the defaults are the names on the hub and in the data of RTT's authors."""

    texts: str | None = None
    """Column with the criteria in words: texts, or mappings with a `description` (usual: `criteria`, `rubrics`)."""
    source: str = "source"
    """Column with the source of a row, one of four."""
    ground_truth: str = "ground_truth"
    """Column with the data to check the criteria, a mapping or its JSON."""


@register("hir")
class Hir(CodedSet):
    """HiR-16K (Zhang et al. 2025), sastpg/HIR-16K: 16,968 prompts of four sources, the training data of "Rubrics to
    Tokens".

    Columns: `id`, `prompt` (or `messages`), `criteria` (or `rubrics`), `source`, `ground_truth`. The content of
    `ground_truth` depends on the source; its items correspond to the criteria:

        type1  IFTrain       `instruction_id_list`, `kwargs`: IFEval's rules
        type2  Chatbot Arena the same with IFBench's rules
        type3  MulDimIF      `constraints`: [category, kind, sentence]
        type4  VerIF         `checker`, `functions`: [rule] with Python source, [llm] for the judge

    The authors of RTT leave 799 hard criteria to the judge: `detectable_format:constrained_response` (332),
    `format:quotes` (149), `words:start_verb` (149), `ratio:sentence_type` (81), `ratio:sentence_balance` (69) and the
    rule on Chinese (19). Here only the criteria without a rule go to the judge; `judged` can add the others.
    """

    version = 3

    HUB_FILES: ClassVar[tuple[str, ...]] = ("HIR_trainv1.jsonl",)

    path: HubPath = "sastpg/HIR-16K"
    columns: HirColumns = HirColumns()
    list_criteria: bool = False
    """Add the criteria to the prompt, one per line, for files whose prompts do not state them. The reader reports the
    number of prompts that contain none of them word for word.
    """

    def roles(self) -> list[tuple[str, str]]:
        """Return the columns without the prompt, because rows may have `messages` instead."""
        return [column for column in super().roles() if column[0] != "prompt"]

    def prompt_of(self, row: Row) -> Prompt:
        if self.columns.prompt == "prompt" and row.get("prompt") is None and "messages" in row:
            return as_prompt(row["messages"], "messages")
        return super().prompt_of(row)

    def id_of(self, row: Row, name: str) -> str:
        """Return an id with the source, because rows of different sources may have the same number."""
        return f"{self.value(row, 'source')}:{name}"

    def meta_of(self, row: Row) -> dict[str, Any]:
        return {"source": self.value(row, "source")}

    def with_criteria(self, prompt: Prompt, demands: Sequence[Demand], tally: Tally) -> Prompt:
        if not self.list_criteria:
            text = _normalized(as_one_text(prompt))
            tally.unstated += not any(_normalized(demand.text) in text for demand in demands)
            return prompt
        more = "\n".join(["", "", "Keep all of these rules:", *(f"- {demand.text}" for demand in demands)])
        if isinstance(prompt, str):
            return prompt + more
        return [*prompt[:-1], prompt[-1].model_copy(update={"content": prompt[-1].content + more})]

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        texts, truth = self._texts(row), parsed(self.value(row, "ground_truth"), self.columns.ground_truth)
        if not isinstance(truth, Mapping):
            raise BadRow(f'"{self.columns.ground_truth}" is {short(truth)}: wants a mapping')
        # a table gives every row the keys of all sources
        truth = {name: value for name, value in truth.items() if value is not None}
        if "instruction_id_list" in truth:
            ids, kwargs = (as_list(truth.get(name), name) for name in ("instruction_id_list", "kwargs"))
            check_lengths(criteria=texts, instruction_id_list=ids, kwargs=kwargs)
            return [self.by_id(*rule) for rule in zip(ids, kwargs, texts, strict=True)]
        if "constraints" in truth:
            return constraints(truth["constraints"], as_one_text(prompt), self.judged, texts)
        if "functions" in truth:
            name = next((name for name in ("checker", "checkers") if name in truth), "checker")
            return self.coded(as_list(truth.get(name), name), as_list(truth["functions"], "functions"), prompt, texts)
        raise BadRow(
            f'"{self.columns.ground_truth}" has {", ".join(truth) or "nothing"}: wants instruction_id_list and kwargs, '
            "constraints, or checker and functions"
        )

    def _texts(self, row: Row) -> list[str]:
        column = self.columns.texts or next(
            (name for name in ("criteria", "rubrics") if row.get(name) is not None), None
        )
        if column is None:
            raise BadRow('no column "criteria" or "rubrics"; name it as columns.texts')
        criteria = as_list(row.get(column), column)
        texts = [
            criterion.get("description") if isinstance(criterion, Mapping) else criterion for criterion in criteria
        ]
        return as_texts(texts, column, "texts, or mappings with a description")


def _normalized(text: str) -> str:
    """Return a text in lower case, with single spaces and without a final period, for comparison."""
    return " ".join(text.lower().split()).rstrip(".")
