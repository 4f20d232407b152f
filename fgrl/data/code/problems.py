"""Base class of readers of programming problems: each row becomes a prompt whose rubric has one criterion, that the
program passes its tests. The sample's `reference` is the data set's own solution, its `meta.tests` the tests as text,
which prompts about programs show.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from fgrl.data.json_hub import JsonHub
from fgrl.data.row import BadRow, Row, short
from fgrl.feedback.sandbox import ProgramSandbox
from fgrl.feedback.templates import Prompt, read_prompt
from fgrl.registry import File
from fgrl.types import Criterion, Message, Response, Sample

CHECK = "code:tests"
"""The verifier that runs tests."""
CRITERION = "The program passes its tests."
PLACEHOLDERS = ("problem", "tests", "first_test", "functions")


@dataclass(frozen=True)
class Problem:
    """The content of a row."""

    text: str
    """The problem as the data set states it."""
    tests: list[str]
    check: dict[str, Any]
    """Fields of `code:tests` besides the tests: `format`, `entry_point`, `start`, `preamble`."""
    solution: str | None = None
    functions: list[str] = field(default_factory=list)
    """Heads of the functions that the program must define."""
    shown: list[str] | None = None
    """Tests that a prompt may show, if they differ from the tests that are run; None if they do not."""
    bare: str | None = None
    """The prompt if no prompt file is named; None uses `text`."""
    responses: Mapping[str, str] = field(default_factory=dict)
    """Programs that the data set has for the problem, by author."""


class ProblemSet(JsonHub):
    """Programming problems with tests."""

    split: str = "test"
    """Name of the split, e.g. `test[:10%]`."""
    prompt: Annotated[str | None, File] = None
    """File with the prompt. It contains {problem}, and may contain {tests}, {first_test} and {functions}, the heads of
    the functions to define. Null: the problem without any words around it, for models that complete text.
    """
    as_text: bool = False
    """Join the turns of the prompt file into one text, with an empty line between them: for base models, which have no
    chat template.
    """
    stop: list[str] = []
    """Texts that end the program: it ends before the first of them in the response."""
    unreplayed: Literal["pass", "fail"] = "pass"
    """Verdict on a program that passes, but whose pass cannot be confirmed by a replay (see `code:tests`): it passes,
    or it fails.
    """
    sandbox: ProgramSandbox = ProgramSandbox()
    """Sandbox in which programs and tests run."""

    @abstractmethod
    def problem(self, row: Row) -> Problem:
        """Return the problem of a row. Raises `BadRow`."""

    def read(self) -> Iterator[Sample]:
        prompt = None if self.prompt is None else read_prompt(self.prompt, known=PLACEHOLDERS, wanted=["problem"])
        where, rows, numbers = self.opened()
        self.check_columns(where, rows)
        convert = self.with_own_ids(where, partial(self._sample, prompt))
        yield from self.reported(where, rows, numbers, convert, "is a problem")

    # ------------------------------------------------------------------------------------------------------------------

    def text(self, row: Row, role: str) -> str:
        """Return a text that is not blank. Raises `BadRow`."""
        value = self.value(row, role)
        if not isinstance(value, str) or not value.strip():
            raise BadRow(f'"{getattr(self.columns, role)}" is {short(value)}: wants text')
        return value

    def _sample(self, prompt: Prompt | None, row: Row, number: int) -> Sample:
        problem = self.problem(row)
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
            id=self.name_of_row(row, number),
            prompt=filled,
            responses=[Response(text=text, by=author) for author, text in problem.responses.items()],
            reference=problem.solution,
            rubric=[Criterion(text=CRITERION, check=self._check(problem))],
            meta={"tests": tests} | self.kept(row),
        )

    def _check(self, problem: Problem) -> dict[str, Any]:
        settings: Mapping[str, Any] = {
            **problem.check,
            "stop": self.stop,
            "unreplayed": "" if self.unreplayed == "pass" else self.unreplayed,
            "sandbox": self.sandbox.given(),
        }
        return {"name": CHECK, "tests": problem.tests} | {key: value for key, value in settings.items() if value}
