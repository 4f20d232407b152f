"""A rule that runs tests on the program in a response."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from fgrl.base.errors import Requires, Undecided
from fgrl.feedback.rules.programs.extraction import complete, extract
from fgrl.feedback.rules.rule import Rule
from fgrl.feedback.sandbox import Call, Outcome, ProgramSandbox, Sandbox, shared
from fgrl.types import Span

REMEMBERED = 10_000
Format = Literal["pytest_functions", "human_eval", "asserts"]


@dataclass(frozen=True)
class ProgramOutcome:
    """Outcome of the tests of a program."""

    passed: bool | None
    """True if the program passed; None if the tests could not be run, or the sandbox itself failed."""
    detail: str = ""
    """The test that failed and its first error, or the reason why there is no verdict; one line."""
    replayed: bool = False
    """True if the pass was confirmed in a process in which the program never ran."""


class ProgramTests(Rule):
    """Tests of programs: their settings, and the runs of `fgrl.feedback.rules.programs.harness` inside the sandbox.

    1. The program and the tests run in one call, which records what the tests call and what they get.
    2. If they pass, the tests run again, in a separate call, on the record alone. A program must pass both.
    """

    tests: list[str] = Field(min_length=1)
    """Source of the tests: a text, or a list of texts. With the format `asserts` they run one after the other."""
    format: Format
    """Form of the tests. `pytest_functions`: functions whose names begin with `test`, which import the program as
    `solution`. `human_eval`: `check(candidate)`. `asserts`: statements.
    """
    entry_point: str | None = None
    """The function that the program has to define."""
    start: str = ""
    """Text that a response continues, e.g. a function's head and docstring. A response that defines `entry_point`
    itself comes after this text.
    """
    preamble: str = ""
    """Source that is run before the program and before the tests, e.g. imports."""
    stop: list[str] = []
    """Texts that end the program: it ends before the first of them, e.g. `"\nprint"`."""
    unreplayed: Literal["pass", "fail"] = "pass"
    """Verdict on a program that passes, but whose calls cannot be replayed (they take or return more than Python's own
    data, or depend on chance): it passes, or it fails.
    """
    label: str = ""
    """Name of the tests in tables; empty: `tests` and a part of their hash."""
    sandbox: ProgramSandbox = Field(default_factory=ProgramSandbox)
    """Sandbox of the program and the tests."""

    _seen: dict[str, ProgramOutcome] = PrivateAttr(default_factory=dict)

    @field_validator("tests", mode="before")
    @classmethod
    def _one_text(cls, tests: Any) -> Any:
        return [tests] if isinstance(tests, str) else tests

    @model_validator(mode="after")
    def _consistent(self) -> ProgramTests:
        if self.entry_point is None and (self.format == "human_eval" or self.start):
            raise ValueError("entry_point: wants the name of the function that the program defines")
        return self

    def check_machine(self) -> None:
        """Raise `Unavailable` if this machine's sandbox is weaker than the recipe requires, or lacks its packages."""
        self._sandbox()

    def _sandbox(self) -> Sandbox:
        if self.format != "pytest_functions":
            return shared(self.sandbox, _harness())
        Requires("pytest", "format: pytest_functions needs the package pytest", extra="code").check()
        return shared(
            self.sandbox.model_copy(update={"packages": sorted({*self.sandbox.packages, "pytest"})}), _harness()
        )

    def title(self) -> str:
        if self.label:
            return self.label
        return f"tests {hashlib.sha256(chr(10).join(self.tests).encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

    def may_be_undecided(self) -> bool:
        return True

    def reads_variants(self) -> bool:
        return False

    def keeps(self, response: str) -> bool:
        """Return True if the program passes. Raises `Undecided`, and `Unavailable` if the sandbox is too weak."""
        tested = self.tested(response)
        if tested.passed is None:
            raise Undecided(f"{self.title()}: {tested.detail}")
        return tested.passed

    def breaking(self, response: str) -> list[Span] | None:
        """Return `[]` if the tests pass, else None: the place of the mistake in the program is unknown."""
        return [] if self.verdict(response) else None

    def program(self, response: str) -> str:
        """Return the program that is run: the code of the response, after `start` if it is set."""
        code = extract(response, self.entry_point, self.stop)
        return complete(self.start, code, self.entry_point) if self.start and self.entry_point else code

    def tested(self, response: str) -> ProgramOutcome:
        """Return the outcome of the tests of the program in a response. A response without text fails, and nothing is
        run.
        """
        if not response.strip():
            return ProgramOutcome(False, "the response is empty")
        program = self.program(response)
        if program not in self._seen:
            if len(self._seen) >= REMEMBERED:
                self._seen.clear()
            self._seen[program] = self._test(program)
        return self._seen[program]

    def _test(self, program: str) -> ProgramOutcome:
        task = {
            "program": program, "tests": self.tests, "format": self.format, "entry_point": self.entry_point,
            "setup": self.preamble,
        }  # fmt: skip
        nonce = secrets.token_hex(16)
        try:
            program.encode()
            outcome = self._sandbox().run(Call("", "record", [task, self.sandbox.result_kb * 512, nonce]))
        except UnicodeEncodeError:
            return ProgramOutcome(False, "the program has half of a character")
        except (ValueError, RecursionError) as problem:  # the tests are too large for a call
            return ProgramOutcome(None, str(problem))
        if outcome.lost:
            return ProgramOutcome(None, outcome.detail)
        answer = outcome.value
        if not _is_answer(answer, nonce):
            return ProgramOutcome(False, _why(outcome))
        if answer["passed"] is None:
            return ProgramOutcome(None, answer["detail"])
        if not answer["passed"]:
            return ProgramOutcome(False, answer["detail"])
        return self._confirmed(task, answer)

    def _confirmed(self, task: dict[str, Any], answer: dict[str, Any]) -> ProgramOutcome:
        """Return the outcome of a program that has passed, after the tests have run on the record."""
        why_not = answer["why_not"]
        if answer["record"] is not None:
            outcome = self._sandbox().run(Call("", "replay", [{**task, "program": ""}, answer["record"]]))
            if outcome.lost:
                return ProgramOutcome(None, outcome.detail)
            if outcome.returned and outcome.value["passed"]:
                return ProgramOutcome(True, replayed=True)
            if outcome.returned and outcome.value["passed"] is False:
                return ProgramOutcome(False, f"the tests fail on what the program returned: {outcome.value['detail']}")
            why_not = outcome.value["why_not"] if outcome.returned else _why(outcome)
        return ProgramOutcome(self.unreplayed == "pass", f"not replayed: {why_not}")


@cache
def _harness() -> str:
    return resources.files(__package__).joinpath("harness.py").read_text(encoding="utf-8")


def _is_answer(answer: Any, nonce: str) -> bool:
    """Return True for an answer of `record` with the number that only this call was given."""
    kinds = {"nonce": str, "passed": bool | None, "detail": str, "record": dict | None, "why_not": str}
    return (
        isinstance(answer, dict)
        and answer.keys() == kinds.keys()
        and all(isinstance(answer[name], kind) for name, kind in kinds.items())
        and secrets.compare_digest(answer["nonce"].encode("utf-8", "replace"), nonce.encode())
    )


def _why(outcome: Outcome) -> str:
    if outcome.returned:
        return "the program changed the answer of the tests"
    return f"{outcome.kind}: {outcome.detail}"
