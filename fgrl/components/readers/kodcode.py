"""KodCode's problems with tests as pytest functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from fgrl.data.code.problems import Problem, ProblemSet
from fgrl.data.hub import HubPath
from fgrl.data.json_hub import RecordColumns
from fgrl.data.row import BadRow, Row, cell, short
from fgrl.registry import register


class KodCodeColumns(RecordColumns):
    """Column names of KodCode; the defaults are the names on the hub."""

    id: str | None = "question_id"
    problem: str = "question"
    """Column with the problem."""
    tests: str = "test"
    """Column with pytest functions that import the program as `solution`."""
    solution: str | None = "solution"
    """Column with a program that passes."""
    info: str | None = "test_info"
    """Column with the functions that the tests call: mappings with `function_name` and `function_declaration`."""
    responses: list[str] = []
    """Columns with programs that models wrote for the problem. Each program becomes a response whose author is the
    column's name.
    """


@register("kodcode")
class KodCode(ProblemSet):
    """KodCode (Xu et al. 2025): Python problems with solutions and tests, which a model wrote and which were verified
    by execution.

    Columns: `question_id`, `question`, `solution`, `test`, `test_info`, and others. KodCode/KodCode-Light-RL-10K has
    10,000 rows, KodCode/KodCode-V1 447,000 (test_info there too); their only split is `train`.
    KodCode/KodCode-V1-SFT-4o has GPT-4o's programs (`4o_solution`, `4o_correctness`, tests in `test_code`): 262,659
    that pass (`train`) and 146,893 that do not (`incorrect`; `split: train+incorrect` reads both). Non-commercial
    licence (CC BY-NC 4.0). For tests that need packages, list them in `sandbox: {packages: [numpy]}`; without such a
    package the verdict is missing.
    """

    path: HubPath = "KodCode/KodCode-Light-RL-10K"
    split: str = "train"
    """Split of the data set; `train+incorrect` reads two splits."""
    columns: KodCodeColumns = KodCodeColumns()

    def optional(self) -> frozenset[str]:
        return frozenset({"solution", "info"})

    def problem(self, row: Row) -> Problem:
        tests, info = self.text(row, "tests"), self._info(row)
        imported = imported_names(tests)
        wanted = [name for name in (known.get("function_name") for known in info) if name in imported]
        solution = self.value(row, "solution")
        return Problem(
            self.text(row, "problem"),
            [tests],
            {"format": "pytest_functions", "entry_point": wanted[0] if wanted else None},
            solution if isinstance(solution, str) and solution.strip() else None,
            [text for text in (known.get("function_declaration") for known in info) if isinstance(text, str)],
            responses={column: self._program(row, column) for column in self.columns.responses},
        )

    def _program(self, row: Row, column: str) -> str:
        program = cell(row, column)
        if not isinstance(program, str) or not program.strip():
            raise BadRow(f'"{column}" is {short(program)}: wants a program')
        return program

    def _info(self, row: Row) -> list[Mapping[str, Any]]:
        value = self.value(row, "info")
        known = [value] if isinstance(value, Mapping) else [] if value is None else value
        if not isinstance(known, list) or not all(isinstance(item, Mapping) for item in known):
            raise BadRow(f'"{self.columns.info}" is {short(value)}: wants a list of mappings')
        return known


def imported_names(tests: str) -> list[str]:
    """Return the names that tests import from `solution`; an empty list if the tests are not valid Python."""
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "solution"]
    return [alias.name for node in froms for alias in node.names]
