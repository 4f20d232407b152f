"""MBPP's problems, tested by asserts."""

from __future__ import annotations

import ast
from typing import Any, Literal

from fgrl.data.code.problems import Problem, ProblemSet
from fgrl.data.hub import HubPath
from fgrl.data.json_hub import RecordColumns
from fgrl.data.row import BadRow, Row, has
from fgrl.data.values import as_list, as_texts
from fgrl.registry import register


class MbppColumns(RecordColumns):
    """Column names of MBPP; the defaults are the names on the hub. The configuration `full` needs `problem: text`."""

    id: str | None = "task_id"
    problem: str = "prompt"
    """Column with the problem in a sentence."""
    tests: str = "test_list"
    """Column with asserts."""
    more_tests: str | None = "test"
    """Column with one test program: the tests of MBPP+."""
    solution: str | None = "code"
    """Column with a program that passes."""
    imports: str | None = "test_imports"
    """Column with lines that the tests need, or a text; `test_setup_code` in the configuration `full`."""


@register("mbpp")
class Mbpp(ProblemSet):
    """MBPP (Austin et al. 2021), google-research-datasets/mbpp: 427 small problems (`sanitized`; 257 in `test`) with
    three asserts each; and MBPP+ (Liu et al. 2023).

    `tests: plus` with `path: evalplus/mbppplus` (378 problems, split `test`) uses MBPP+'s tests, which need `sandbox:
    {packages: [numpy]}`; `tests: base` uses the asserts of the same 378 problems. Columns: `task_id`, `prompt` (or
    `text`), `code`, `test_list`, `test_imports` (or `test_setup_code`), and `test` in MBPP+. Prompts show asserts,
    never the tests of MBPP+: all of them (`prompts/code_tests.txt`), or the first one, as EvalPlus does
    (`prompts/code_first_test.txt`). Without a prompt file a response follows the problem and its first test, in a
    docstring as in EvalPlus.
    """

    path: HubPath = "google-research-datasets/mbpp"
    config: str | None = None
    """Configuration of the data set; null is `sanitized` for google-research-datasets/mbpp."""
    columns: MbppColumns = MbppColumns()
    tests: Literal["base", "plus"] = "base"
    """Tests to use: the asserts, or the tests of MBPP+."""

    def hub_config(self) -> str | None:
        return "sanitized" if self.config is None and self.path.endswith("/mbpp") else self.config

    def problem(self, row: Row) -> Problem:
        asserts = as_texts(self.value(row, "tests"), self.columns.tests)
        if not asserts:
            raise BadRow(f'"{self.columns.tests}" is empty')
        tests = asserts if self.tests == "base" else [self.text(row, "more_tests")]
        solution = self.value(row, "solution")
        check = {
            "format": "asserts",
            "entry_point": entry_point(solution, asserts),
            "preamble": "\n".join(self._imports(row)),
        }
        problem = self.text(row, "problem")
        bare = "\n".join(['"""', problem.strip(), *asserts[:1], '"""', ""])
        own = solution if isinstance(solution, str) else None
        return Problem(problem, tests, check, own, shown=asserts, bare=bare)

    def optional(self) -> frozenset[str]:
        return frozenset({"solution", "imports"} | ({"more_tests"} if self.tests == "base" else set()))

    def _imports(self, row: Row) -> list[str]:
        column = self.columns.imports
        default = column == type(self.columns).model_fields["imports"].default
        if default and not has(row, "test_imports") and has(row, "test_setup_code"):
            return [str(row["test_setup_code"] or "")]
        value: Any = self.value(row, "imports")
        lines = [value] if isinstance(value, str) else as_list(value or [], str(column))
        return as_texts([line for line in lines if line != ""], str(column))


def entry_point(solution: Any, tests: list[str]) -> str | None:
    """Return the function of the solution that the tests call first; None if it is unknown."""
    try:
        defined = {node.name for node in ast.parse(solution).body if isinstance(node, ast.FunctionDef)}
        calls = [node for test in tests for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Call)]
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        return None
    called = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
    return next((name for name in called if name in defined), None)
