"""Files of three benchmarks, with their exact fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from answer_helpers import answer_of

from fgrl.base.errors import DataError
from fgrl.components.readers.benchmark import Benchmark
from fgrl.measuring import answer_files, given
from fgrl.types import Message, Response, Sample

ALPACA = [
    {"dataset": "helpful_base", "instruction": "Who?", "output": "Me.", "generator": "gpt4_1106_preview"},
    {"dataset": "koala", "instruction": "Where?", "output": "Here.", "generator": "gpt4_1106_preview"},
]
ARENA = [{"uid": "2edbb5f36f5b42be", "category": "arena-hard-v0.1", "cluster": "AI", "prompt": "Why?"}]
ARENA_OLD = [{"question_id": "328c", "category": "arena-hard-v0.1", "cluster": "AI", "turns": [{"content": "Why?"}]}]
ARENA_ANSWERS = [
    {"uid": "2edbb5f36f5b42be", "ans_id": "x", "model": "gpt-4-0314", "tstamp": 1.5, "metadata": {"token_len": 2},
     "messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": {"answer": "So."}}]},
]  # fmt: skip
ARENA_OLD_ANSWERS = [
    {"question_id": "328c", "answer_id": "x", "model_id": "gpt-4-0314", "tstamp": 1.5,
     "choices": [{"index": 0, "turns": [{"content": "So.", "token_len": 2}]}]},
]  # fmt: skip
MT = [
    {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
    {"question_id": 111, "category": "math", "prompt": ["Add.", "More."], "reference": ["3", "4"]},
    {"question_id": 112, "category": "math", "prompt": ["Add."], "reference": []},
]
MT_ANSWERS = [
    {"question_id": 81, "answer_id": "x", "model_id": "gpt-4", "tstamp": 1.5,
     "choices": [{"index": 0, "turns": ["A.", "B."]}, {"index": 1, "turns": ["C.", "D."]}]},
]  # fmt: skip


def text(sample: Sample) -> str | None:
    response = sample.chosen_response
    return None if response is None else response.text


def read(folder: Path, format: Any, rows: list[Any], **fields: Any) -> list[Sample]:
    path = folder / "file"
    path.write_text(json.dumps(rows) if format == "alpaca_eval" else "".join(json.dumps(row) + "\n" for row in rows))
    return list(Benchmark(format=format, path=str(path), **fields).read())


def test_alpaca_eval(tmp_path: Path) -> None:
    one, two = read(tmp_path, "alpaca_eval", ALPACA, expect_rows=2)
    assert (one.id, one.prompt, text(one), one.meta) == ("0", "Who?", "Me.", {"dataset": "helpful_base"})
    assert two.id == "1"
    assert [sample.id for sample in read(tmp_path, "alpaca_eval", ALPACA, skip=1)] == ["1"]


@pytest.mark.parametrize("rows", [ARENA, ARENA_OLD])
def test_arena_hard_s_questions(tmp_path: Path, rows: list[Any]) -> None:
    (found,) = read(tmp_path, "arena_hard", rows)
    assert found.id == rows[0].get("uid", rows[0].get("question_id"))
    assert (found.prompt, text(found), found.meta["cluster"]) == ("Why?", None, "AI")


@pytest.mark.parametrize(("rows", "prompt"), [(ARENA_ANSWERS, "Why?"), (ARENA_OLD_ANSWERS, "")])
def test_arena_hard_s_answers(tmp_path: Path, rows: list[Any], prompt: str) -> None:
    (found,) = read(tmp_path, "arena_hard", rows)
    assert (found.prompt, text(found)) == (prompt, "So.")


def test_a_system_prompt_stays(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "Be kind."}, *ARENA_ANSWERS[0]["messages"]]  # type: ignore[misc]
    (found,) = read(tmp_path, "arena_hard", [{**ARENA_ANSWERS[0], "messages": turns}])
    assert found.prompt == [Message(role="system", content="Be kind."), Message(role="user", content="Why?")]


def test_mt_bench_s_questions_have_follow_ups_and_a_reference_a_turn(tmp_path: Path) -> None:
    one, two, three = read(tmp_path, "mt_bench", MT)
    assert (one.id, one.prompt, one.reference) == ("81", "Write.", None)
    assert one.meta == {"follow_ups": ["Again."], "category": "writing"}
    assert (two.prompt, two.reference, two.meta["follow_ups"]) == ("Add.", ["3", "4"], ["More."])
    assert (three.reference, three.meta["follow_ups"]) == (None, [])


def test_mt_bench_s_answers_are_conversations(tmp_path: Path) -> None:
    one, two = read(tmp_path, "mt_bench", MT_ANSWERS)
    assert [(one.id, text(one), one.meta), (two.id, text(two), two.meta)] == [
        ("81", "A.", {"later_responses": ["B."]}), ("81", "C.", {"later_responses": ["D."]}),
    ]  # fmt: skip
    prompt = read(tmp_path, "mt_bench", MT)[0]
    found = given.answers("gpt-4", [one, two], [prompt])
    assert [[turn.response.text for turn in answer.follow_ups] for answer in found] == [["B."], ["D."]]
    with pytest.raises(DataError, match="has 0 answers to 1 later turns"):
        given.answers("gpt-4", [Sample(id="81", prompt="", responses=[Response(text="A.")])], [prompt])


@pytest.mark.parametrize("format", ["alpaca_eval", "arena_hard", "mt_bench"])
def test_what_an_evaluation_writes_is_read_again(tmp_path: Path, format: Any) -> None:
    turns = [("Again.", "B.")] if format == "mt_bench" else []
    answers = [answer_of("0" if format == "alpaca_eval" else "81", "Why?", "A.", follow_ups=turns)]
    (path,) = answer_files.write(format, tmp_path, {"policy": answers})
    (found,) = Benchmark(format=format, path=str(path)).read()
    assert (found.id, text(found)) == (answers[0].id, "A.")
    assert found.meta.get("later_responses", []) == [text for _question, text in turns]


@pytest.mark.parametrize(
    ("format", "rows", "said"),
    [
        ("alpaca_eval", [{"question": "Why?"}], "row 1 is not of the format alpaca_eval"),
        ("arena_hard", [{"uid": "1"}], "row 1 is not of the format arena_hard"),
        ("arena_hard", [{"uid": "1", "prompt": 3}], "wants text, got int"),
        ("mt_bench", [{"question_id": 1, "turns": []}], "row 1 is not of the format mt_bench"),
        ("mt_bench", ["x"], "file:1: wants a JSON object, got str"),
        ("mt_bench", [], "no rows"),
    ],
)
def test_a_file_of_another_kind_is_told(tmp_path: Path, format: str, rows: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, format, rows)


def test_another_number_of_rows_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 rows, but the recipe expects 805"):
        read(tmp_path, "alpaca_eval", ALPACA, expect_rows=805)


def test_broken_json_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('[{"a": 1}, ]')
    with pytest.raises(DataError, match=r"x:1:1[02]: not valid JSON"):
        list(Benchmark(format="alpaca_eval", path=str(tmp_path / "x")).read())


@pytest.mark.parametrize(
    "fields", [{}, {"path": "a", "hub": "b", "file": "c"}, {"hub": "b"}, {"path": "a", "revision": "main"}]
)
def test_one_place(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"wants either `path`|go together"):
        Benchmark(format="mt_bench", **fields)  # type: ignore[arg-type]


def test_a_plan_knows_the_rows_without_the_file() -> None:
    reader = Benchmark(format="alpaca_eval", hub="a/b", file="c.json", expect_rows=805, skip=5)
    expected = reader.expects(None)  # type: ignore[arg-type]
    assert expected is not None
    assert expected.samples == 800
