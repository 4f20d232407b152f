"""Every error that fgrl raises on purpose has an exit code and reaches a person without a traceback."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from fgrl.base import errors
from fgrl.base.errors import FgrlError, Requires
from fgrl.commands import running
from fgrl.commands.shared import fail
from fgrl.experiments.pipeline.endings import ending
from fgrl.experiments.recipe.tracking import Wandb
from fgrl.registry import NotRegistered, Problem, Problems

ROOT = Path(__file__).resolve().parents[1]
CODES = {
    errors.UsageError: 2,
    errors.PolicyNotLent: 2,
    errors.Unavailable: 2,
    NotRegistered: 2,
    Problems: 2,
    errors.DataError: 3,
    errors.OverBudget: 4,
    errors.Stopped: 5,
    errors.DiskError: 6,
    errors.UnknownNeed: 2,
    errors.UserCodeError: 7,
    errors.RankLost: 8,
    errors.EngineFailed: 8,
}
INTERNAL = {errors.NotYet, errors.Undecided}


def subclasses(cls):
    return {cls}.union(*(subclasses(one) for one in cls.__subclasses__()))


def test_every_class_has_a_code():
    ours = {
        cls
        for cls in subclasses(FgrlError) - {FgrlError}
        if cls.__module__ in ("fgrl.base.errors", "fgrl.registry.names")
    }
    assert ours | {Problems} == set(CODES) | INTERNAL


@pytest.mark.parametrize(("cls", "code"), CODES.items())
def test_the_command_line_explains_it_and_returns_its_code(cls, code, capsys):
    error = cls([Problem((), "too long")]) if cls is Problems else cls("too long")
    assert fail(error) == error.exit_code == code
    printed = capsys.readouterr()
    assert "too long" in printed.err
    assert printed.out == ""


def test_the_heading_tells_what_kind_of_error_it_is(capsys):
    fail(errors.DataError("no rows"), as_json=True)
    printed = capsys.readouterr()
    assert printed.err == "fgrl: data: no rows\n"
    assert json.loads(printed.out) == {"error": "fgrl: data: no rows", "exit": 3}


def test_json_has_every_problem_of_a_recipe(capsys):
    fail(Problems([Problem(("seed",), "wants int", "use 1")]), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == [{"path": "seed", "message": "wants int", "hint": "use 1", "place": None}]
    assert found["error"].startswith("seed: wants int")


@pytest.mark.parametrize("error", [errors.NotYet("policy"), errors.Undecided("no"), ValueError("a bug")])
def test_a_bug_keeps_its_traceback(error):
    with pytest.raises(type(error)):
        fail(error)


def test_the_codes_that_users_read_are_those_of_the_classes():
    listed = running.EXAMPLES[running.EXAMPLES.index("Exit codes") :]
    listed = listed[: listed.index("130 interrupted") + 6]
    codes = {int(code) for code in re.findall(r"\b(\d+) [a-z]", listed)}
    assert codes == {errors.DONE, errors.FAILED, errors.POINT_FAILED, errors.INTERRUPTED, *CODES.values()}


def test_a_missing_package_names_the_command_that_installs_it():
    with pytest.raises(errors.Unavailable, match=r"^x asks y, which is not installed: pip install 'fgrl\[rules\]'$"):
        Requires("not_a_package", "x asks y", extra="rules").check()
    Requires("json", "x asks y", extra="rules").check()


def about_missing_packages(source: str) -> list[tuple[int, str]]:
    """(line, class) of every error raised in a file whose message tells how to install something."""
    return [
        (node.lineno, node.exc.func.id)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
        if re.search(r"pip install|how_to_install", ast.unparse(node.exc))
    ]


def test_what_can_be_installed_is_unavailable_and_never_a_mistake_in_data():
    raised = {
        f"{file.relative_to(ROOT)}:{line}": kind
        for file in (ROOT / "fgrl").rglob("*.py")
        for line, kind in about_missing_packages(file.read_text(encoding="utf-8"))
    }
    assert len(raised) > 5
    assert {place: kind for place, kind in raised.items() if kind != "Unavailable"} == {}
    assert about_missing_packages("raise DataError('x: pip install x')") == [(1, "DataError")]


def test_a_missing_package_ends_a_run_with_its_own_code_and_without_a_heading(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = r"wandb, which is not installed: pip install 'fgrl\[wandb\]'"
    with pytest.raises(errors.Unavailable, match=said) as raised:
        Wandb(project="p").check_machine()
    ended = ending(raised.value, tmp_path)
    assert (ended.exit_code, ended.message, ended.bug) == (2, str(raised.value), False)
