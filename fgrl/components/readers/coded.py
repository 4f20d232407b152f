"""Prompts whose rules came as Python: VerInstruct and HiR-16K. The code runs in the sandbox and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from fgrl.data.formats.converter import BadRow, Row, short
from fgrl.data.json_rows import parsed
from fgrl.data.rubrics.muldimif import constraints
from fgrl.data.rubrics.rubric_set import (
    Count,
    Demand,
    Prompt,
    RubricColumns,
    RubricSet,
    as_prompt,
    instruction,
    listed,
    together,
)
from fgrl.data.rubrics.verinstruct import is_hard, verinstruct_criteria
from fgrl.registry import register
from fgrl.rules.code import CODE_CHECKER
from fgrl.sandbox import CheckerSandbox


class CodedSet(RubricSet):
    """Prompts whose rules may be Python source.

    What a checker returns is taken as Python's `if` takes it, as the authors do. One that raises, takes too long or asks for
    what is not there is undecided: its verdict is missing.
    """

    sandbox: CheckerSandbox = CheckerSandbox()
    """Where code of the data runs."""
    returns: Literal["truth", "bool"] = "truth"
    """`truth`: whatever Python's `if` takes for true is kept, anything else broken. `bool`: true or false, else undecided."""

    def coded(
        self, checkers: Sequence[Any], functions: Sequence[Any], prompt: Prompt, texts: Sequence[str] | None = None
    ) -> list[Demand]:
        """The criteria of VerIF's columns. Raises `BadRow`."""
        together(checkers=checkers, functions=functions, **({} if texts is None else {"criteria": texts}))
        if not all(isinstance(one, str) for one in checkers) or not all(
            one is None or isinstance(one, str) for one in functions
        ):
            raise BadRow("checkers and functions: wants texts")
        made = verinstruct_criteria(checkers, functions, instruction(prompt), texts, self.returns, self.sandbox.given())
        return [
            Demand(one.text, one.check, CODE_CHECKER if hard else "", hard=hard, why="" if one.check else _why(source))
            for one, hard, source in zip(made, map(is_hard, checkers, functions), functions, strict=True)
        ]


def _even(text: str) -> str:
    """To compare: in lower case, with single spaces and without a period at the end."""
    return " ".join(text.lower().split()).rstrip(".")


def _why(source: str | None) -> str:
    return "it asks a language model" if source and source.strip() else "without its source"


class VerInstructColumns(RubricColumns):
    """Which column holds what; the defaults are the hub's."""

    checkers: str = "checkers"
    """What is asked for, each with a mark: `[rule]` is checked by its source, `[llm]` goes to the judge."""
    functions: str = "functions"
    """The sources, one each."""


@register("verinstruct")
class VerInstruct(CodedSet):
    """VerInstruct (Peng et al. 2025, "VerIF"), THU-KEG/VerInstruct: about 22,000 prompts; rules come with Python source.

    Columns: `id`, `prompt`, `checkers` and `functions`, lists of texts. A checker without a mark is soft when its source asks
    a language model. Where a checker is a bare name (`Desired_Writing_Style`), its words are what its source asks the
    language model, found without running it, or else the name.
    """

    path: str = "THU-KEG/VerInstruct"
    """Hub id; or a folder; or `json`, `parquet`, `csv` with `files`."""
    columns: VerInstructColumns = VerInstructColumns()
    """Which column holds what, where the hub's names do not fit."""

    def roles(self) -> dict[str, str]:
        return super().roles() | {"checkers": self.columns.checkers, "functions": self.columns.functions}

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        checkers = listed(self.value(row, "checkers"), self.columns.checkers)
        functions = listed(self.value(row, "functions"), self.columns.functions)
        return self.coded(checkers, functions, prompt)


class HirColumns(RubricColumns):
    """Which column holds what; the defaults are those of the hub and of what the authors of RTT made of it."""

    texts: str | None = None
    """The criteria in words: texts, or mappings with a `description` (usual: `criteria`, `rubrics`)."""
    source: str = "source"
    """Which of the four sources a row is from."""
    ground_truth: str = "ground_truth"
    """What the criteria are checked with, a mapping or its JSON."""


@register("hir")
class Hir(CodedSet):
    """HiR-16K (Zhang et al. 2025), sastpg/HIR-16K: 16,968 prompts of four sources, what "Rubrics to Tokens" trains on.

    Columns: `id`, `prompt` (or `messages`), `criteria` (or `rubrics`), `source`, `ground_truth`. What `ground_truth` holds
    goes with the source, one by one with the criteria:

        type1  IFTrain       `instruction_id_list`, `kwargs`: IFEval's rules
        type2  Chatbot Arena the same with IFBench's rules
        type3  MulDimIF      `constraints`: [category, kind, sentence]
        type4  VerIF         `checker`, `functions`: [rule] with Python source, [llm] for the judge

    The authors of RTT leave 799 hard criteria to the judge: `detectable_format:constrained_response` (332), `format:quotes`
    (149), `words:start_verb` (149), `ratio:sentence_type` (81), `ratio:sentence_balance` (69) and the rule on Chinese (19).
    Here only those without a rule are; `judged` takes the others away as well.
    """

    HUB_FILES: ClassVar[tuple[str, ...]] = ("HIR_trainv1.jsonl",)

    path: str = "sastpg/HIR-16K"
    """Hub id; or a folder; or `json`, `parquet`, `csv` with `files`."""
    columns: HirColumns = HirColumns()
    """Which column holds what, where these names do not fit."""
    list_criteria: bool = False
    """Add the criteria to the prompt, a line each, for files whose prompts do not state them. The reader says in how many
    prompts none of them stands word for word."""

    def roles(self) -> dict[str, str]:
        wanted = {"source": self.columns.source, "ground_truth": self.columns.ground_truth}
        return wanted | ({} if self.columns.texts is None else {"texts": self.columns.texts})

    def prompt_of(self, row: Row) -> Prompt:
        named = self.columns.prompt
        column = "messages" if named == "prompt" and row.get("prompt") is None and "messages" in row else named
        if column == named:
            return super().prompt_of(row)
        return as_prompt(row[column], column)

    def named(self, row: Row, id: str) -> str:
        """With its source: rows of different sources may have the same number."""
        return f"{self.value(row, 'source')}:{id}"

    def more(self, row: Row) -> dict[str, Any]:
        return {"source": self.value(row, "source")}

    def asked(self, prompt: Prompt, demands: Sequence[Demand], count: Count) -> Prompt:
        if not self.list_criteria:
            said = _even(instruction(prompt))
            count.unsaid += not any(_even(one.text) in said for one in demands)
            return prompt
        more = "\n".join(["", "", "Keep all of these rules:", *(f"- {one.text}" for one in demands)])
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
            ids, kwargs = (listed(truth[name], name) for name in ("instruction_id_list", "kwargs") if name in truth)
            together(criteria=texts, instruction_id_list=ids, kwargs=kwargs)
            return [self.by_id(*one) for one in zip(ids, kwargs, texts, strict=True)]
        if "constraints" in truth:
            return constraints(truth["constraints"], instruction(prompt), self.judged, texts)
        if "functions" in truth:
            name = next((name for name in ("checker", "checkers") if name in truth), "checker")
            return self.coded(listed(truth.get(name), name), listed(truth["functions"], "functions"), prompt, texts)
        raise BadRow(
            f'"{self.columns.ground_truth}" has {", ".join(truth) or "nothing"}: wants instruction_id_list and kwargs, '
            "constraints, or checker and functions"
        )

    def _texts(self, row: Row) -> list[str]:
        named = self.columns.texts
        column = named or next((name for name in ("criteria", "rubrics") if row.get(name) is not None), None)
        if column is None:
            raise BadRow('no column "criteria" or "rubrics"; name it as columns.texts')
        found = []
        for one in listed(row.get(column), column):
            text = one.get("description") if isinstance(one, Mapping) else one
            if not isinstance(text, str) or not text.strip():
                raise BadRow(f'"{column}" has {short(one)}: wants texts, or mappings with a description')
            found.append(text.strip())
        return found
