"""What the readers of programming problems share: rows -> prompts whose rubric is one criterion, that the program passes its
tests.

The sample's `reference` is the data set's own solution, its `meta.tests` the tests as text, which prompts about programs show.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fgrl.data.json_hub import JsonHub
from fgrl.data.row import BadRow, Ids, Row, as_id, cell, has, short
from fgrl.data.row_reader import Omissions
from fgrl.errors import DataError
from fgrl.registry import File, Settings
from fgrl.sandbox import ProgramSandbox
from fgrl.templates import Prompt, read_prompt
from fgrl.types import Criterion, Message, Response, Sample

CHECK = "code:tests"
"""The verifier that runs tests."""
CRITERION = "The program passes its tests."
PLACEHOLDERS = ("problem", "tests", "first_test", "functions")


class ProblemColumns(Settings):
    """Which column holds what; dots reach into nested ones."""

    id: str | None = None
    """What identifies a row; null takes its number."""
    meta: list[str] = []
    """Columns to keep beside the sample, as they are."""


@dataclass(frozen=True)
class Problem:
    """A row."""

    text: str
    """The problem as the data set states it."""
    tests: list[str]
    check: dict[str, Any]
    """Fields of `code:tests` besides the tests: `format`, `entry_point`, `start`, `preamble`."""
    solution: str | None = None
    functions: list[str] = field(default_factory=list)
    """Heads of the functions that the program has to define."""
    shown: list[str] | None = None
    """The tests that a prompt may show, where they are not those that are run; None: these."""
    bare: str | None = None
    """The prompt where no prompt file is named; None: the text."""
    responses: Mapping[str, str] = field(default_factory=dict)
    """Programs that the data set has for the problem, by who wrote them."""


class ProblemSet(JsonHub):
    """Programming problems with tests."""

    split: str = "test"
    """Which split; `test[:10%]` works."""
    columns: ProblemColumns = ProblemColumns()
    """Which column holds what, where the hub's names do not fit."""
    prompt: Annotated[str | None, File] = None
    """The prompt file, with {problem}, and if it wants them {tests}, {first_test} and {functions}, the heads of the wanted
    functions. Null: the problem without any words around it, for models that complete text."""
    as_text: bool = False
    """Make one text of the prompt file's turns, with an empty line between them: for base models, which have no chat template."""
    stop: list[str] = []
    """The program in a response ends before the first of these texts."""
    unreplayed: Literal["pass", "fail"] = "pass"
    """What passes where it ran, but cannot be confirmed by a replay (see `code:tests`): it passes, or it fails."""
    sandbox: ProgramSandbox = ProgramSandbox()
    """Where programs and tests run."""

    @abstractmethod
    def problem(self, row: Row) -> Problem:
        """What a row holds. Raises `BadRow`."""

    def read(self) -> Iterator[Sample]:
        prompt = None if self.prompt is None else read_prompt(self.prompt, known=PLACEHOLDERS, wanted=["problem"])
        where, rows = self.rows()
        self.count(len(rows), where)
        numbers = self.chosen(len(rows), where)
        self._check_columns(where, next(iter(self.at(rows, [0]))))
        ids, omissions, read = Ids(), Omissions(), 0

        def sample(row: Row, number: int) -> Sample:
            created = self._sample(prompt, row, number)
            ids.add(created.id, self.place(where, number))
            return created

        for created in self.records(where, rows, numbers, sample, omissions):
            read += 1
            yield created
        if omissions:
            self.say(f"{where}: {omissions.summary(len(numbers))}")
        if not read:
            raise DataError(f"{where}: none of {len(numbers)} rows is a problem{omissions.first_misfit}")

    # ------------------------------------------------------------------------------------------------------------------

    def optional(self) -> frozenset[str]:
        """Roles whose columns need not exist."""
        return frozenset()

    def roles(self) -> dict[str, str]:
        """Role -> column: the fields of `columns` that name one column."""
        return {role: name for role, name in self.columns.model_dump().items() if isinstance(name, str)}

    def lists(self) -> list[tuple[str, str]]:
        """(role, column) of the fields of `columns` that name several."""
        fields = self.columns.model_dump().items()
        return [(role, name) for role, names in fields if isinstance(names, list) for name in names]

    def value(self, row: Row, role: str) -> Any:
        """What the row holds for a role; None for an optional column that does not exist. Raises `BadRow`."""
        name = getattr(self.columns, role)
        if name is None or (role in self.optional() and not has(row, name)):
            return None
        return cell(row, name)

    def text(self, row: Row, role: str) -> str:
        """A text that is not blank. Raises `BadRow`."""
        value = self.value(row, role)
        if not isinstance(value, str) or not value.strip():
            raise BadRow(f'"{getattr(self.columns, role)}" is {short(value)}: wants text')
        return value

    def _sample(self, prompt: Prompt | None, row: Row, number: int) -> Sample:
        problem = self.problem(row)
        name = as_id(number if self.columns.id is None else self.value(row, "id"), self.columns.id)
        tests = "\n".join(problem.tests)
        filled: str | list[Message] = problem.text if problem.bare is None else problem.bare
        if prompt is not None:
            shown = problem.tests if problem.shown is None else problem.shown
            values = {
                "problem": problem.text.strip("\n"), "tests": "\n".join(shown), "first_test": shown[0],
                "functions": "\n".join(problem.functions),
            }  # fmt: skip
            turns = prompt.fill(values)
            filled = "\n\n".join(turn.content for turn in turns) if self.as_text else turns
        return Sample(
            id=name,
            prompt=filled,
            responses=[Response(text=text, by=author) for author, text in problem.responses.items()],
            reference=problem.solution,
            rubric=[Criterion(text=CRITERION, check=self._check(problem))],
            meta={"tests": tests} | {column: cell(row, column) for column in self.columns.meta},
        )

    def _check(self, problem: Problem) -> dict[str, Any]:
        settings: Mapping[str, Any] = {
            **problem.check,
            "stop": self.stop,
            "unreplayed": "" if self.unreplayed == "pass" else self.unreplayed,
            "sandbox": self.sandbox.given(),
        }
        return {"name": CHECK, "tests": problem.tests} | {key: value for key, value in settings.items() if value}

    def _check_columns(self, where: str, first: Row) -> None:
        """Raise `DataError` when a column does not exist."""
        for role, name in [*self.roles().items(), *self.lists()]:
            if role not in self.optional() and not has(first, name):
                by_number = "null for the row's number, or to what identifies a row"
                meaning = by_number if role == "id" else "the column to read"
                raise self.no_column(where, first, f'no column "{name}"', role, meaning)
