"""Checkers that came with data: only in the sandbox, and undecided when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of
from pydantic import ValidationError

from fgrl.base.errors import Unavailable, Undecided
from fgrl.components.verifiers.all_of import AllOf
from fgrl.components.verifiers.code_checker import CodeChecker
from fgrl.components.verifiers.ifeval.punctuation import NoComma
from fgrl.feedback.rules.rule import loose, relevant
from fgrl.feedback.sandbox import SandboxSpec, detect, strength, walls
from fgrl.kinds import Metric, PairBuilder, Verifier
from fgrl.registry import build
from fgrl.types import Response, Sample

pytestmark = pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")

SANDBOX = SandboxSpec(require="weak", seconds=20)
SHOUTS = "def check_following(instruction, response):\n    return response.isupper()"


FOLLOWING = {
    "function": "check_following",
    "order": ["instruction", "response"],
    "arguments": {"instruction": "Shout."},
}


def checker(source: str, **more) -> CodeChecker:
    return CodeChecker(source=source, **FOLLOWING, sandbox=SANDBOX, **more)


def test_it_decides_in_the_sandbox() -> None:
    rule = checker(SHOUTS)
    assert rule.check("YES")
    assert not rule.check("yes")
    assert rule.verdict("YES") is True
    assert rule.violations("YES") == []
    assert rule.violations("yes") is None
    assert [span.end for span in relevant(rule, "YES")] == [3]
    assert not rule.check("  ")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise ValueError(response)", "error"),
        ("from llm_call import llm_score", "error"),
        ("while True: pass", "timeout"),
        ("return bytearray(1 << 34)", "memory"),
        ("print('x' * 10 ** 6); return True", "output"),
        ("return None", "it returned "),
        ("return 'yes'", "it returned "),
        ("return 2", "it returned "),
        ("return 1.0", "it returned "),
        ("import os; os._exit(0)", "crash"),
        ("import sys; sys.exit(1)", "error"),
    ],
)
def test_what_fails_is_missing_and_says_why(body: str, kind: str) -> None:
    rule = CodeChecker(
        source=f"def check_following(instruction, response):\n    {body}",
        **FOLLOWING,
        sandbox=SandboxSpec(require="weak", seconds=0.5 if kind == "timeout" else 20),
    )
    for _ in range(2):  # the second time it is remembered
        with pytest.raises(Undecided, match=kind):
            rule.check("an answer")
    assert rule.verdict("an answer") is None
    assert rule.violations("an answer") is None


@pytest.mark.parametrize(("value", "kept"), [("True", True), ("False", False), ("1", True), ("0", False)])
def test_true_and_false(value: str, kept: bool) -> None:
    assert checker(f"def check_following(instruction, response): return {value}").verdict("x") is kept


def test_the_truth_of_other_values_where_that_is_asked_for() -> None:
    source = "import re\ndef check_following(instruction, response): return re.search('cat', response)"
    assert checker(source).verdict("a cat") is None
    assert checker(source, returns="truth").verdict("a cat") is True
    assert checker(source, returns="truth").verdict("a dog") is False


def test_arguments_by_place_and_by_name() -> None:
    rule = CodeChecker(
        source="def at_least(text, *, n): return len(text.split()) >= n",
        function="at_least", arguments={"n": 2}, sandbox=SANDBOX,
    )  # fmt: skip
    assert [rule.verdict("one"), rule.verdict("one two")] == [False, True]
    with pytest.raises(ValidationError, match="not in `arguments`"):
        CodeChecker(source=SHOUTS, order=["instruction", "response"])
    with pytest.raises(ValidationError, match="has to name"):
        CodeChecker(source=SHOUTS, order=["instruction"], arguments={"instruction": ""})


@pytest.mark.parametrize("odd", [float("nan"), "deep"])
def test_arguments_that_cannot_be_handed_over_leave_the_verdict_missing(odd: Any) -> None:
    """They are the data's, and one odd row must not end a run."""
    if odd == "deep":
        for _ in range(100_000):
            odd = [odd]
    source = "def check(response, odd): return True"
    rule = CodeChecker(source=source, order=["response", "odd"], arguments={"odd": 1}, sandbox=SANDBOX)
    rule.arguments["odd"] = odd
    rule.label = "odd"
    with pytest.raises(Undecided, match="odd: request: "):
        rule.check("a")


def test_a_hostile_checker_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a strong sandbox: it reads no secret, writes nothing, starts nothing, and says nothing."""
    if detect().strength != "strong":
        pytest.skip(f"needs a strong sandbox: {detect().lacks}")
    monkeypatch.setenv("API_KEY", "hunter2")
    secret, written = tmp_path / "secret", tmp_path / "written"
    secret.write_text("the secret", encoding="utf-8")
    source = f"""
import os
open({str(written)!r}, "w") if os.path.isdir({str(tmp_path)!r}) else None
def check_following(instruction, response):
    return os.path.exists({str(secret)!r}) or "API_KEY" in os.environ or os.system("true") == 0
"""
    rule = CodeChecker(source=source, **FOLLOWING)
    assert rule.sandbox.require == "strong"
    assert rule.verdict("an answer") is False
    assert not written.exists()


def test_the_default_refuses_a_weak_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without bubblewrap nothing of the source runs."""
    strength.detect.cache_clear()
    walls.program.cache_clear()
    monkeypatch.setattr(walls.shutil, "which", lambda name: None)
    monkeypatch.setattr(walls, "packaged", lambda: None)
    try:
        source = f"open({str(tmp_path / 'ran')!r}, 'w')\n{SHOUTS}"
        rule = CodeChecker(source=source, **FOLLOWING)
        nested = AllOf(rules=[NoComma(), rule])
        for refused in (lambda: rule.setup(None), lambda: nested.setup(None), lambda: rule.check("x")):
            with pytest.raises(Unavailable, match="apt-get install bubblewrap"):
                refused()
    finally:
        strength.detect.cache_clear()
        walls.program.cache_clear()
    assert not (tmp_path / "ran").exists()


BROKEN = "def check_following(instruction, response): return 1 / 0"


def test_a_broken_rule_decides_and_an_undecided_one_does_not() -> None:
    rules: list[Verifier] = [checker(BROKEN, label="broken"), NoComma()]
    both = AllOf(rules=rules)
    assert both.verdict("a, b") is False
    assert both.verdict("a b") is None
    assert both.may_be_undecided()
    assert both.verdicts("a b") == {"broken": None, NoComma().title(): True}


def test_loose_is_undecided_only_when_no_reading_is_kept() -> None:
    lines = checker("def check_following(instruction, response): return response == 'b' or 1 / 0")
    assert loose(lines, "a\nb")
    with pytest.raises(Undecided):
        loose(lines, "a\nc")
    with pytest.raises(Undecided):
        relevant(lines, "c")


def test_metrics_leave_out_what_is_undecided_and_say_how_much() -> None:
    source = "def check_following(instruction, response): return {'y': True, 'n': False}[response]"
    metric = build(Metric, {"name": "rule", "rule": {**_spec(source)}})
    answers = [answer_of(str(i), "p", text, finished=True) for i, text in enumerate(["y", "n", "y", "?"])]
    found = metric.measure({"policy": answers})["rule"]["policy"]
    assert found["kept"]["mean"] == pytest.approx(2 / 3)
    assert found["kept"]["n"] == 3
    assert found["undecided"]["mean"] == 0.25


def test_pairs_leave_out_responses_that_are_undecided() -> None:
    source = "def check_following(instruction, response): return {'y': True, 'n': False}[response]"
    builder = build(PairBuilder, {"name": "by_rule", "rule": _spec(source)})
    sample = Sample(id="1", prompt="p", responses=[Response(text=text) for text in ("y", "?", "n", "??")])
    assert [(pair.chosen, pair.rejected) for pair in builder.build(sample)] == [("y", "n")]


def _spec(source: str) -> dict:
    sandbox = {"require": "weak"}
    return {"name": "code:checker", "source": source, **FOLLOWING, "sandbox": sandbox}


def test_limits_of_a_recipe_reach_the_sandbox() -> None:
    spec = {
        **_spec("def check_following(instruction, response):\n  while True: pass"),
        "sandbox": {"require": "weak", "seconds": 0.25},
    }
    with pytest.raises(Undecided, match=r"it took longer than 0\.25 s"):
        build(Verifier, spec).keeps("x")
