"""Criteria with Python beside them: what is run, what is judged, and what is only read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.components.readers.verinstruct import VerInstruct
from fgrl.data.row import BadRow
from fgrl.data.rubrics.coded_set import asked_of_model, in_words, is_hard, mark
from fgrl.feedback.sandbox import CheckerSandbox, detect
from fgrl.kinds import Verifier
from fgrl.registry import build

SHOUTS = "def check_following(instruction, response):\n    return response.isupper()"
ASKS = (
    "from llm_call import llm_judge, llm_extract, llm_score\n"
    "def check_following(instruction, response):\n"
    "    return llm_score(instruction, response, 'Be kind, ' \"always.\")"
)
WEAK = CheckerSandbox(require="weak", seconds=20)
needs_sandbox = pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")


def test_marks() -> None:
    assert mark("[rule] Number_Paragraphs") == ("rule", "Number_Paragraphs")
    assert mark("[LLM]Be kind.") == ("llm", "Be kind.")
    assert mark(" Be [rule] kind. ") == (None, "Be [rule] kind.")


@pytest.mark.parametrize(
    ("checker", "source", "hard"),
    [
        ("[rule] All capitals", SHOUTS, True),
        ("[rule] Extracts first", ASKS, True),
        ("[rule] Without a source", " ", True),
        ("[llm] Be kind.", ASKS, False),
        ("[llm] Be kind.", SHOUTS, False),
        ("No mark", SHOUTS, True),
        ("No mark", ASKS, False),
        ("No mark", None, False),
    ],
)
def test_hard_or_soft(checker: str, source: str | None, hard: bool) -> None:
    assert is_hard(checker, source) is hard


@needs_sandbox
def test_the_columns_of_verinstruct() -> None:
    checkers = ["[rule] All capitals", "[llm] Be kind.", "[rule] Without a source", "No mark", "[rule] Extracts first"]
    reader = VerInstruct(sandbox=WEAK)
    criteria = reader.coded(checkers, [SHOUTS, ASKS, " ", SHOUTS, ASKS], "Shout.")
    assert [one.text for one in criteria] == [
        "All capitals",
        "Be kind.",
        "Without a source",
        "No mark",
        "Extracts first",
    ]
    assert [one.check is None for one in criteria] == [False, True, True, False, True]
    rule = build(Verifier, json.loads(json.dumps(criteria[0].check)))
    assert rule.title() == "All capitals"
    assert [rule.verdict("YES"), rule.verdict("yes")] == [True, False]
    with pytest.raises(BadRow, match="2 checkers, 1 functions: they belong together"):
        reader.coded(["[rule] a", "[rule] b"], [SHOUTS], "")
    with pytest.raises(BadRow, match="1 checkers, 1 functions, 2 criteria"):
        reader.coded(["[rule] a"], [SHOUTS], "", ["a", "b"])


@needs_sandbox
def test_re_is_there_as_where_the_authors_run_it() -> None:
    source = "def check_following(instruction, response): return re.search('cat', response)"
    rule = build(Verifier, VerInstruct(sandbox=WEAK).check(source, "", "cats"))
    assert [rule.verdict("a cat"), rule.verdict("a dog")] == [True, False]
    future = "from __future__ import annotations\ndef check_following(instruction, response): return True"
    assert build(Verifier, VerInstruct(sandbox=WEAK, returns="bool").check(future, "", "x")).verdict("x") is True


def test_the_sandbox_is_what_the_recipe_says() -> None:
    assert "sandbox" not in VerInstruct().check(SHOUTS, "", "x")
    assert VerInstruct(sandbox=WEAK).check(SHOUTS, "", "x")["sandbox"] == {"require": "weak", "seconds": 20.0}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (ASKS, "Be kind, always."),
        ("llm_judge(instruction, f(response, 'no'), 'Yes, (this).')", "Yes, (this)."),
        ("llm_score(instruction, response, '''Two\\nlines''')", "Two\nlines"),
        ("llm_score(instruction, response, text)", None),
        ("llm_score(instruction, response, f'{text}')", None),
        ("llm_score(instruction, response)", None),
        ("llm_score(instruction, response, b'bytes')", None),
        ("other(instruction, response, 'no')", None),
        (SHOUTS, None),
        ("(((", None),
        ("llm_score(", None),
        ("'''open", None),
        ("", None),
        (None, None),
    ],
)
def test_what_a_source_asks_is_read_and_not_run(source: str | None, text: str | None) -> None:
    assert asked_of_model(source) == text


@given(st.text(st.sampled_from("llm_score(),'\"\\\n x:[]{}#f"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_source_is_read_without_raising(source: str) -> None:
    asked_of_model(source)
    asked_of_model("llm_score(a, b, " + source)


def test_a_deep_source_is_read_without_raising() -> None:
    assert asked_of_model("(" * 200_000) is None
    assert asked_of_model("llm_score(a, b, " + "-" * 100_000 + "'x')") == "x"


def test_bare_names_get_words() -> None:
    assert in_words("[llm] Desired_Writing_Style", ASKS) == "Be kind, always."
    assert in_words("[rule] Number_Paragraphs", SHOUTS) == "Number Paragraphs"
    assert in_words("[llm] Style: be kind.", ASKS) == "Style: be kind."
