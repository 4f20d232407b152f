"""The out-of-domain tasks of Rubrics to Tokens: right answers in the form that the prompt asks for count as right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fgrl.experiments.pipeline.keys import sha256
from fgrl.experiments.recipe import load

ROOT = Path(__file__).resolve().parents[2]
MATH = {"problem": "What is $1/2$?", "solution": "It is $\\boxed{\\frac{1}{2}}$.", "answer": "\\frac{1}{2}"}
GPQA = {
    "Question": "Which one?", "Correct Answer": "this", "Incorrect Answer 1": "that", "Incorrect Answer 2": "those",
    "Incorrect Answer 3": "these",
}  # fmt: skip
MMLU = {
    "question": "Which one?", "options": list("abcdefghij"), "answer": "J", "answer_index": 9, "category": "law",
    "cot_content": "",
}  # fmt: skip
FORM = (
    "Answer the multiple choice question. The last line of your response should be of the following format: "
    "'Answer: $LETTER' (without quotes) where LETTER is one of choices. Think step by step before answering."
)


@pytest.fixture(scope="module")
def stage() -> Any:
    """`general` of the main recipe."""
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'fgrl[eval]'")
    return load(ROOT / "recipes" / "rtt_qwen3.yaml").stages["general"]


def task(stage: Any, number: int, row: dict[str, Any], folder: Path) -> Any:
    """The recipe's task of this number, with one row of a local file in place of the hub's."""
    from fgrl.measuring import harness

    manager = harness.task_manager(stage)
    entry = manager.task_index[stage.tasks[number].task]
    children = [child for child in manager.task_index.values() if child.name == f"{entry.name}_law"]
    path = (children or [entry])[0].yaml_path
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    local = {"include": str(path), "dataset_path": "json", "dataset_name": None}
    files = {split: str(folder / "rows.jsonl") for split in ("train", "validation", "test")}
    config = local | {"task": "local", "dataset_kwargs": {"data_files": files}}
    (folder / "local.yaml").write_text(json.dumps(config))
    own = harness.tasks.TaskManager(include_path=str(folder), include_defaults=False)
    (loaded,) = own.load(["local"])["tasks"].values()
    return loaded


def verdict(loaded: Any, answer: str) -> float:
    """What the harness makes of an answer: filtered, then scored."""
    (doc,) = loaded.eval_docs
    loaded.build_all_requests(limit=1, rank=0, world_size=1)
    (request,) = loaded.instances
    request.resps = [answer]
    loaded.apply_filters()
    (scores,) = [
        loaded.process_results(doc, [request.filtered_resps[name]]) for name in list(request.filtered_resps)[-1:]
    ]
    return float(scores["exact_match"])


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Half of it: $\\boxed{\\frac{1}{2}}$.", True),
        ("First \\boxed{3}, no: \\boxed{\\dfrac12}", True),
        ("It is $\\boxed{\\frac{1}{3}}$.", False),
        ("\\frac{1}{2}", False),
        ("\\boxed{\\frac{1}{2}", False),
        ("\\fbox{2}", False),
        ("", False),
    ],
)
def test_the_answer_to_a_math_problem_is_in_the_box(stage: Any, answer: str, right: bool, tmp_path: Path) -> None:
    assert verdict(task(stage, 0, MATH, tmp_path), answer) == right


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("I think so.\nAnswer: {}", True),
        ("Answer: A or B?\n\n**Answer: {}**", True),
        ("Answer: **{}**.", True),
        ("Answer: $({})$", True),
        ("The answer is {}", False),
        ("{}", False),
        ("Answer: nothing", False),
    ],
)
@pytest.mark.parametrize(("number", "row"), [(1, GPQA), (2, MMLU)], ids=["gpqa", "mmlu_pro"])
def test_the_answer_to_a_choice_is_the_last_letter_after_the_word(
    stage: Any, number: int, row: dict[str, Any], answer: str, letter: bool, tmp_path: Path
) -> None:
    loaded = task(stage, number, row, tmp_path)
    right = loaded.doc_to_target(next(iter(loaded.eval_docs)))
    assert verdict(loaded, answer.replace("{}", right)) == letter
    assert verdict(loaded, answer.replace("{}", "C" if right != "C" else "D")) == 0


def test_prompts_are_those_of_table_7(stage: Any, tmp_path: Path) -> None:
    for name in ("math", "gpqa", "mmlu"):
        (tmp_path / name).mkdir()
    math = task(stage, 0, MATH, tmp_path / "math")
    asked = "\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert math.doc_to_text(MATH) == f"Question: {MATH['problem']}{asked}"
    gpqa = task(stage, 1, GPQA, tmp_path / "gpqa")
    (question,) = gpqa.eval_docs
    shown = "".join(f"{letter}) {choice}\n" for letter, choice in zip("ABCD", question["choices"], strict=True))
    assert gpqa.doc_to_text(question) == f"Question: Which one?\n\n{shown}\n{FORM}"
    assert question["choices"]["ABCD".index(question["answer"])] == "this"
    mmlu = task(stage, 2, MMLU, tmp_path / "mmlu")
    shown = "".join(f"{letter}) {choice}\n" for letter, choice in zip("ABCDEFGHIJ", "abcdefghij", strict=True))
    assert mmlu.doc_to_text(MMLU) == f"Question: Which one?\n\n{shown}\n{FORM}"


def test_bytecode_beside_a_task_does_not_change_the_stages_key(tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text("x = 1\n")
    before = sha256(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "reading.cpython-311.pyc").write_bytes(b"x")
    assert sha256(tmp_path) == before
    (tmp_path / "reading.py").write_text("x = 2\n")
    assert sha256(tmp_path) != before
