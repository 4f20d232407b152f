"""Tests that come with a prompt decide about programs; what a program does to pass without doing its task fails."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fgrl.base.errors import Unavailable, Undecided
from fgrl.components.verifiers.code_tests import CodeTests
from fgrl.feedback.rules.programs import testing
from fgrl.feedback.rules.programs.testing import ProgramOutcome
from fgrl.feedback.rules.rule import loose
from fgrl.feedback.sandbox import Outcome, ProgramSandbox, detect
from fgrl.feedback.sandbox.sandbox import Sandbox
from fgrl.kinds import Verifier
from fgrl.registry import build

pytestmark = pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")

SANDBOX = ProgramSandbox(require="weak", seconds=20)
QUICK = ProgramSandbox(require="weak", seconds=0.5)
KODCODE = """from solution import square
import pytest

def test_small():
    assert square(2) == 4
    assert square(3) == 9

def test_negative():
    assert square(-3) == 9
"""
START = 'def square(x):\n    """The square of x."""\n'
CHECK = """

METADATA = {'author': 'jt'}

def check(candidate):
    assert candidate(2) == 4, "wrong for 2"
    assert candidate(3) == 9
    assert candidate(-3) == 9
"""
ASSERTS = ["assert square(2) == 4", "assert square(3) == 9", "assert square(-3) == 9"]
SETTINGS: dict[str, dict[str, Any]] = {
    "pytest_functions": {"tests": KODCODE},
    "human_eval": {"tests": CHECK, "entry_point": "square", "start": START},
    "asserts": {"tests": ASSERTS},
}
FORMATS = list(SETTINGS)


def rule(form: str, sandbox: ProgramSandbox = SANDBOX, **more: Any) -> CodeTests:
    return CodeTests(**{"format": form, "sandbox": sandbox, **SETTINGS[form], **more})


def kodcode(tests: str, **more: Any) -> CodeTests:
    return rule("pytest_functions", tests=tests, **more)


@pytest.mark.parametrize("form", FORMATS)
def test_right_and_wrong_programs(form: str) -> None:
    tests = rule(form)
    assert tests.tested("def square(x):\n    return x * x") == ProgramOutcome(True, replayed=True)
    assert tests.check("Here:\n```python\ndef square(x):\n    return x ** 2\n```\nDone.")
    wrong = tests.tested("def square(x):\n    return 2 * x")
    assert wrong.passed is False
    assert "AssertionError" in wrong.detail
    assert "== 9" in wrong.detail
    assert not tests.check("   ")
    assert tests.violations("def square(x):\n    return x * x") == []
    assert tests.violations("def square(x):\n    return 2 * x") is None


def test_a_body_continues_the_start() -> None:
    tests = rule("human_eval")
    assert tests.check("    return x * x\n")
    assert tests.check("```python\n    return x * x\n```")
    assert not tests.check("    return x\n")
    assert tests.check("    return x * x\n\n\nprint(square(") is False
    assert rule("human_eval", stop=["\nprint"]).check("    return x * x\n\n\nprint(square(")


@pytest.mark.parametrize(
    ("program", "detail"),
    [
        ("def square(x):\n    return x + y", "test_small: NameError: name 'y' is not defined (line 2 of the program), in `assert square(2) == 4`"),
        ("def square(x:\n    pass", "the program itself: SyntaxError"),
        ("import nothing_like_this", "the program itself: ModuleNotFoundError"),
        ("def other(x):\n    return x", "tests: ImportError: cannot import name 'square'"),
        ("def square(x):\n    return x * x if x > 0 else 0", "test_negative: AssertionError, in `assert square(-3) == 9`"),
    ],
)  # fmt: skip
def test_the_first_error_is_reported(program: str, detail: str) -> None:
    assert rule("pytest_functions").tested(program).detail.startswith(detail)


RIGHT = "def square(x):\n    return x * x\n"
WRONG = "def square(x):\n    return 0\n"
CHEATS = {
    "prints that it passed": WRONG + "print('passed')\nprint('OK')\n",
    "sys.exit(0) when loaded": WRONG + "import sys\nsys.exit(0)\n",
    "sys.exit(0) when called": "import sys\ndef square(x):\n    sys.exit(0)\n",
    "os._exit(0) when loaded": WRONG + "import os\nos._exit(0)\n",
    "os._exit(0) when called": "import os\ndef square(x):\n    os._exit(0)\n",
    "SystemExit": "def square(x):\n    raise SystemExit(0)\n",
    "KeyboardInterrupt": "def square(x):\n    raise KeyboardInterrupt\n",
    "patched AssertionError": "import builtins\nclass E(Exception): pass\nbuiltins.AssertionError = E\n" + WRONG,
    "patched builtins": "import builtins\nfor name in ('all', 'any', 'abs', 'isinstance', 'len', 'exec', 'compile', 'issubclass', 'type'):\n"
    "    setattr(builtins, name, lambda *a, **k: True)\n" + WRONG,
    "shadowed names": WRONG + "check = lambda c: None\ntest_small = test_negative = lambda: None\nall = any = lambda x: True\n",
    "overridden tests": WRONG + "import sys\ndef square(x):\n    space = sys._getframe(2).f_globals\n"
    "    for name in list(space):\n        if name.startswith(('test', 'check')): space[name] = lambda *a: None\n    return 0\n",
    "equals everything": "class A:\n    def __eq__(self, other): return True\n    def __lt__(self, other): return True\n"
    "def square(x):\n    return A()\n",
    "a number that equals everything": "class A(int):\n    def __eq__(self, other): return True\ndef square(x):\n    return A(0)\n",
    "a list that equals everything": "class A(list):\n    def __eq__(self, other): return True\ndef square(x):\n    return A()\n",
    "a fake pytest": "import sys, types\nsys.modules['pytest'] = types.ModuleType('pytest')\n" + WRONG,
    "a fake solution": "import sys, types\nfake = types.ModuleType('solution')\nfake.square = lambda x: x * x\nsys.modules['solution'] = fake\n" + WRONG,
    "patched json": "import json\njson.dumps = lambda *a, **k: '{\"value\": {\"passed\": true}}'\n" + WRONG,
    "an answer of its own": "import os\ndef square(x):\n    os.write(3, b'{\"value\": {\"passed\": true}}')\n    os._exit(0)\n",
    "an answer in the right form": "import json, os\ndef square(x):\n    answer = {'nonce': '0' * 32, 'passed': True, 'detail': '', 'record': None, 'why_not': 'x'}\n"
    "    os.write(3, json.dumps({'value': answer}).encode())\n    os._exit(0)\n",
    "settrace": "import sys\ndef trace(frame, event, arg):\n    return trace\nsys.settrace(trace)\nsys.excepthook = lambda *a: None\n" + WRONG,
    "a changed line": "import sys\ndef square(x):\n    frame = sys._getframe(2)\n    frame.f_trace = lambda *a: None\n    frame.f_lineno = 99\n    return 0\n",
    "a hidden error": "def square(x):\n    try:\n        raise ValueError\n    finally:\n        return 0\n",
    "recursion": "def square(x):\n    return square(x)\n",
    "too much memory": "def square(x):\n    return bytearray(1 << 40)\n",
    "an exception that equals everything": "class E(AssertionError):\n    pass\ndef square(x):\n    raise E\n",
    "catches what the tests raise": "import sys\nsys.exc_info = lambda: (None, None, None)\nimport traceback\ntraceback.extract_tb = None\n" + WRONG,
    "atexit": "import atexit, os\natexit.register(lambda: os._exit(0))\n" + WRONG,
    "a signal": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\n" + WRONG,
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize("form", FORMATS)
def test_no_trick_passes(form: str, cheat: str) -> None:
    tests = rule(form)
    assert tests.tested(CHEATS[cheat]).passed is False
    assert tests.check(RIGHT), "the next program is judged as ever"


FORGED = """import json, os, sys
def square(x):
    frame, nonce = sys._getframe(), None
    while frame:
        nonce = frame.f_locals.get("nonce") or nonce
        frame = frame.f_back
    answer = {"nonce": nonce, "passed": True, "detail": "", "record": RECORD, "why_not": "forged"}
    os.write(3, json.dumps({"value": answer}).encode())
    os._exit(0)
"""
EMPTY = "{'calls': [], 'constants': {}, 'modules': {}, 'functions': {'square': 'square'}}"


@pytest.mark.parametrize("form", FORMATS)
def test_a_forged_answer_has_to_stand_the_replay(form: str) -> None:
    """A program that finds its own process's secret can forge that process's answer, not the replay of its record."""
    claims = FORGED.replace("RECORD", EMPTY.replace("[]", "[{'name': 'square', 'given': [0, 0], 'result': 0}]"))
    assert rule(form, unreplayed="fail").tested(claims).passed is False
    assert rule(form, unreplayed="fail").tested(FORGED.replace("RECORD", EMPTY)).passed is False
    assert rule(form, unreplayed="fail").tested(FORGED.replace("RECORD", "None")).passed is False
    assert rule(form, unreplayed="fail").check(RIGHT)


def test_without_a_replay_a_forged_answer_passes() -> None:
    """The stated limit of `unreplayed: pass`."""
    tested = rule("asserts").tested(FORGED.replace("RECORD", "None"))
    assert tested == ProgramOutcome(True, "not replayed: forged")
    equal = "import io, sys\nclass A(int):\n    def __eq__(self, other): return True\nsys.stdout = io.StringIO()\ndef square(x):\n    return A(0)\n"
    assert rule("asserts").tested(equal) == ProgramOutcome(True, "not replayed: the tests read what is printed")
    assert rule("asserts", unreplayed="fail").tested(equal).passed is False


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("def square(x):\n    while True: pass\n", "timeout"),
        ("while True: pass", "timeout"),
        ("import time\ndef square(x): time.sleep(1000)\n", "timeout"),
        ("def square(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n", "timeout"),
        ("import os\ndef square(x):\n    while True: os.write(1, b'x' * 1000)\n", "output"),
        ("import ctypes\ndef square(x): ctypes.string_at(0)\n", "crash"),
        ("import os\ndef square(x):\n    while True: os.write(3, b'x' * 1000)\n", "result"),
    ],
)  # fmt: skip
def test_what_exceeds_a_limit_fails(program: str, kind: str) -> None:
    tests = rule("pytest_functions", QUICK if kind == "timeout" else SANDBOX)
    tested = tests.tested(program)
    assert tested.passed is False
    assert tested.detail.startswith(kind)


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("def test_a(:\n", "the tests are not Python"),
        ("import nothing_like_this\ndef test_a(): pass\n", "the tests import nothing_like_this"),
        ("from solution import square\n", "there is no test"),
        ("def test_a(mocker): pass\n", "the tests use the fixture 'mocker'"),
        ("async def test_a(): pass\n", "the tests are asynchronous functions"),
    ],
)
def test_tests_that_cannot_run_leave_the_verdict_missing(tests: str, why: str) -> None:
    own = kodcode(tests)
    with pytest.raises(Undecided, match="tests"):
        own.check(RIGHT)
    assert own.verdict(RIGHT) is None
    assert own.tested(RIGHT).detail.startswith(why)


def test_a_lost_sandbox_leaves_the_verdict_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Outcome("crash", detail="the sandbox does not answer", lost=True)
    monkeypatch.setattr(Sandbox, "run", lambda self, call: lost)
    tests = rule("asserts")
    with pytest.raises(Undecided, match="the sandbox does not answer"):
        tests.check(RIGHT)


def test_tests_are_run_by_pytest() -> None:
    tests = kodcode('''
import pytest
import solution
from solution import *
import math

@pytest.fixture
def base():
    return 3

@pytest.fixture()
def twice(base):
    yield 2 * base

@pytest.mark.parametrize("x, expected", [(1, 1), pytest.param(2, 4, id="two")])
@pytest.mark.parametrize("sign", [1, -1])
def test_parametrized(x, expected, sign):
    assert square(sign * x) == expected

def test_fixture(twice, base):
    assert square(twice) == 36 and base == 3

def test_raises():
    with pytest.raises(TypeError, match="can't multiply"):
        solution.square("a")
    with pytest.raises(TypeError) as info:
        square(None)
    assert info.type is TypeError and pytest.__version__

def test_prints(capsys):
    print(square(2))
    assert capsys.readouterr().out == "4\\n"

def test_folder(tmp_path):
    (tmp_path / "a").write_text("1")
    assert square(int((tmp_path / "a").read_text())) == 1

class TestClass:
    def setup_method(self):
        self.x = 5

    @pytest.mark.slow
    def test_method(self):
        assert square(self.x) == pytest.approx(25.0)

import unittest

class Case(unittest.TestCase):
    def test_equal(self):
        for x, expected in ((1.5, 2.25), (2.5, 6.25)):
            with self.subTest(x=x):
                self.assertEqual(square(x), expected)
''')  # fmt: skip
    assert tests.tested(RIGHT).passed is True
    for wrong in (
        "return abs(x) * x",
        "return x * x if x != 6 else 0",
        "return float(x) ** 2",
        "return x * x + (x == 1.5)",
        "return x * x + (x == 2.5)",
    ):
        assert tests.tested(f"def square(x):\n    {wrong}\n").passed is False


BY_PYTEST = {
    "pytest.exit with 0": "import pytest\ndef square(x):\n    pytest.exit('done', returncode=0)\n",
    "pytest.skip": "import pytest\ndef square(x):\n    pytest.skip()\n",
    "SkipTest": "import unittest\ndef square(x):\n    raise unittest.SkipTest\n",
    "pytest.xfail": "import pytest\ndef square(x):\n    pytest.xfail()\n",
    "a mark that skips": "import pytest\npytestmark = pytest.mark.skip\n" + WRONG,
    "a mark of expected failures": "import pytest\npytestmark = pytest.mark.xfail\n" + WRONG,
    "no parameters": "import pytest\npytestmark = pytest.mark.parametrize('x', [])\n" + WRONG,
    "a fixture that skips": "import pytest\n@pytest.fixture(autouse=True)\ndef skipped():\n    pytest.skip()\n" + WRONG,
    "main": "import pytest\npytest.main = lambda *a, **k: 0\n" + WRONG,
    "a fixture that is missing": "from _pytest.fixtures import FixtureLookupError\ndef square(x):\n    raise FixtureLookupError('x', None)\n",
    "a plugin of its own": "import sys\ndef square(x):\n    frame = sys._getframe()\n    while frame:\n        item = frame.f_locals.get('item')\n"
    "        if item is not None:\n            item.session.items.clear()\n            item.session.shouldstop = 'done'\n        frame = frame.f_back\n    return 0\n",
}  # fmt: skip


@pytest.mark.parametrize("cheat", BY_PYTEST)
def test_what_pytest_offers_passes_no_test(cheat: str) -> None:
    """Neither its exit code, nor a test that was skipped or not run."""
    tests = kodcode(KODCODE.replace("import square", "import *"))
    assert tests.tested(BY_PYTEST[cheat]).passed is False
    assert tests.check(RIGHT)


@pytest.mark.parametrize("mark", ["skip", "skipif(True, reason='x')", "xfail", "xfail(strict=True)"])
def test_marks_that_skip_a_test_or_expect_it_to_fail_are_ignored(mark: str) -> None:
    tests = kodcode(KODCODE.replace("def test_negative", f"@pytest.mark.{mark}\ndef test_negative"))
    assert tests.check(RIGHT)
    assert not tests.check("def square(x):\n    return x * abs(x)\n")


REPLACED_REPORTS = """import sys
def square(x):
    frame = sys._getframe()
    while frame:
        run = frame.f_locals.get("self")
        if type(run).__name__ == "Run":
            run.waiting, run.error, run.failed = {}, None, lambda why: None
        frame = frame.f_back
    return 0
"""
TESTS_THAT_DO_NOTHING = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n" + WRONG


@pytest.mark.parametrize("program", [REPLACED_REPORTS, TESTS_THAT_DO_NOTHING])
def test_reports_that_a_program_replaced_do_not_stand_the_replay(program: str) -> None:
    assert rule("pytest_functions", unreplayed="fail").tested(program).passed is False


def test_a_replay_that_differs_is_none_where_the_tests_hide_it() -> None:
    tests = "import random\nfrom solution import square\ndef test_it():\n    try:\n        square(random.random())\n    except BaseException:\n        pass\n"
    program = "import random\nrandom.random()\ndef square(x):\n    return x * x\n"
    assert kodcode(tests).tested(RIGHT).replayed
    assert kodcode(tests).tested(program) == ProgramOutcome(True, "not replayed: call 1 differs from the recorded one")


def test_without_pytest_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda package: None)
    with pytest.raises(
        Unavailable, match=r"needs the package pytest, which is not installed: pip install 'fgrl\[code\]'"
    ):
        rule("pytest_functions").check_machine()
    rule("asserts").check_machine()


def test_a_class_of_the_program_is_tested_where_it_ran() -> None:
    text = "from solution import Stack\ndef test_it():\n    s = Stack()\n    s.push(1)\n    assert s.pop() == 1\n"
    program = "class Stack(list):\n    push = list.append\n"
    assert kodcode(text).tested(program) == ProgramOutcome(
        True, "not replayed: the tests use Stack, which is neither a function nor data"
    )
    assert kodcode(text, unreplayed="fail").check(program) is False


def test_results_that_are_iterators_and_changed_arguments_are_replayed() -> None:
    tests = rule(
        "asserts",
        tests=[
            "assert list(up(3)) == [0, 1, 2]",
            "items = [2, 1]\nassert order(items) is None\nassert items == [1, 2]",
            "assert next(up(5)) == 0",
        ],
    )
    program = "def up(n):\n    yield from range(n)\ndef order(items):\n    items.sort()\n"
    assert tests.tested(program) == ProgramOutcome(True, replayed=True)
    assert not tests.check(program.replace("range(n)", "range(1, n)"))


def test_data_of_the_program_that_change_are_read_anew() -> None:
    tests = kodcode(
        "import solution\ndef test_it():\n    assert solution.count == 0\n    solution.f()\n    assert solution.count == 1\n"
    )
    program = "count = 0\ndef f():\n    global count\n    count += 1\n"
    assert tests.tested(program) == ProgramOutcome(True, "not replayed: count changes while the tests run")
    assert not tests.check(program.replace("+= 1", "+= 2"))


def test_what_a_program_prints_decides_nothing() -> None:
    prints = (
        "import sys\ndef square(x):\n    print('x' * 10 ** 6)\n    sys.stderr.write('y' * 10 ** 6)\n    return x * x\n"
    )
    for form in FORMATS:
        assert rule(form).tested(prints) == ProgramOutcome(True, replayed=True)


def test_chance_in_program_and_tests_is_no_failure() -> None:
    tests = kodcode(
        "import random\nfrom solution import square\ndef test_it():\n    for _ in range(3):\n        x = random.random()\n        assert square(x) == x * x\n"
    )
    assert tests.tested(RIGHT).replayed
    tested = tests.tested("import random\ndef square(x):\n    random.random()\n    return x * x\n")
    assert tested.passed is True
    assert tested.detail.startswith("not replayed: call 2 differs")


def test_names_that_are_builtins_are_the_programs_only_where_they_are_wanted() -> None:
    own = "def sum(a, b):\n    return a + b\n"
    assert rule("asserts", tests="assert sum(1, 2) == 3", entry_point="sum").check(own)
    assert not rule("asserts", tests="assert sum(1, 2) == 3").check(own)


def test_helpers_of_the_start_and_a_preamble() -> None:
    start = 'def helper(x):\n    return x + 1\n\n\ndef f(x):\n    """One more."""\n'
    tests = "def check(candidate):\n    assert helper(candidate(1)) == 3 and math.pi\n"
    own = rule("human_eval", tests=tests, start=start, entry_point="f", preamble="import math")
    assert own.tested("    return int(math.floor(helper(x)))\n") == ProgramOutcome(True, replayed=True)
    assert own.tested("def f(x):\n    return helper(x)\n") == ProgramOutcome(True, replayed=True)


def test_a_program_has_no_loose_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = rule("asserts")
    assert not loose(tests, f"not Python\n{RIGHT}")
    assert loose(tests, RIGHT)


def test_an_equal_program_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tests, calls = rule("asserts"), []
    run = testing.ProgramTests._test
    monkeypatch.setattr(
        testing.ProgramTests, "_test", lambda self, program: calls.append(program) or run(self, program)
    )
    for text in (RIGHT, f"```python\n{RIGHT}```", RIGHT):
        assert tests.check(text)
    assert len(calls) == 1


def test_settings() -> None:
    built = build(Verifier, {"name": "code:tests", "tests": "assert True", "format": "asserts"})
    assert built.title().startswith("tests ")
    assert built.may_be_undecided()
    assert build(Verifier, {"name": "code:tests", "tests": "x", "format": "asserts", "label": "mine"}).title() == "mine"
    for wrong in (
        {"format": "human_eval"},
        {"format": "asserts", "start": "def f():"},
        {"format": "other"},
        {"format": "asserts", "tests": []},
    ):
        with pytest.raises(ValidationError):
            CodeTests(**{"tests": "x", **wrong})


def test_odd_programs_fail_without_an_error() -> None:
    tests = rule("asserts")
    for program in (
        "\ud800",
        "x" * 10,
        "(" * 100_000,
        "\x00",
        "def square(x):\n    return '\ud800'\n",
        "def square(x): return chr(0xd800)",
    ):
        assert tests.tested(program).passed is False
