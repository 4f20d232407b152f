"""Files that nobody can have meant: each is read, or refused in one message with the file and the line. Never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reading_helpers import Folder

from fgrl.base.errors import DataError
from fgrl.kinds import Reader
from fgrl.registry import build, names

Row = dict[str, Any]
TURNS = [{"role": "user", "content": "Why?"}]
CHECKED = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}

ROWS: dict[str, Row] = {
    "jsonl records": {"id": "1", "prompt": "Why?"},
    "jsonl pairs": {"id": "1", "prompt": "Why?", "chosen": "a", "rejected": "b"},
    "jsonl preference": {"id": "1", "prompt": "Why?", "chosen": "a", "rejected": "b"},
    "jsonl prompts": {"id": "1", "prompt": "Why?"},
    "jsonl sft": {"id": "1", "prompt": "Why?", "response": "a"},
    "benchmark alpaca_eval": {"instruction": "Why?", "output": "a", "generator": "g"},
    "benchmark arena_hard": {"uid": "1", "prompt": "Why?"},
    "benchmark mt_bench": {"question_id": 81, "turns": ["Why?"]},
    "ifeval": {"key": "1", "prompt": "Why?", **CHECKED},
    "ifbench": {"key": "1", "prompt": "Why?", **CHECKED},
    "if_train": {"key": "1", "messages": TURNS, "ground_truth": [{"instruction_id": ["punctuation:no_comma"], "kwargs": [{}]}]},
    "hir": {"id": "1", "prompt": "Why?", "criteria": ["No comma."], "source": "type1", "ground_truth": CHECKED},
    "muldimif": {"id": "1", "conversations": TURNS, "constraints": [["Length", "Words", "at most 5 words"]]},
    "verinstruct": {"id": "1", "prompt": "Why?", "checkers": ["[llm] Be kind."], "functions": [None]},
    "advanced_if": {"conversation_history": TURNS, "prompt_metadata": {"rubrics": ["Is it kind?"]}, "benchmark_name": "b"},
    "hf prompts": {"id": "1", "prompt": "Why?"},
    "questions": {"question": "Why?", "answers": ["b"]},
    "ms_marco": {"query_id": "1", "query": "Why?", "answers": ["b"]},
    "trivia_qa": {"question_id": "1", "question": "Why?", "answer": {"value": "b", "aliases": ["c"]}},
    "truthful_qa": {"question": "Why?", "mc1_targets": {"choices": ["a", "b"], "labels": [1, 0]}},
    "claims": {"claim": "Why?", "label": "yes"},
    "climate_fever": {"claim_id": "1", "claim": "Why?", "claim_label": "SUPPORTS"},
    "pubhealth": {"claim_id": "1", "claim": "Why?", "label": "true"},
    "hsd": {"text": "Why?", "label": "noHate"},
    "sbic": {"post": "Why?", "offensiveYN": "0.0"},
    "kodcode": {"question_id": "1", "question": "Why?", "test": "def test_it(): pass"},
    "human_eval": {"task_id": "1", "prompt": "def f():\n    'Why?'", "test": "def check(candidate): pass", "entry_point": "f"},
    "mbpp": {"task_id": 1, "prompt": "Why?", "test_list": ["assert f()"]},
}  # fmt: skip
"""A row that each reader takes; what it asks is "Why?"."""
BY_LIBRARY = list(ROWS)[list(ROWS).index("hf prompts") :]
"""These read files by the library `datasets`."""
MADE_BY_STAGES = {"samples", "pairs", "versus", "critiques", "merged", "mixed", "with_prompt"}


def reader_of(kind: str, file: Path) -> Reader:
    name, _, form = kind.partition(" ")
    if name in ("jsonl", "benchmark"):
        settings: Row = {"path": str(file), "format": "records" if form == "pairs" else form}
    else:
        settings = {"path": "json", "files": [str(file)], **({"format": form} if form else {})}
    if kind in BY_LIBRARY and not form and name not in ("kodcode", "human_eval", "mbpp"):
        folder, main = Folder(file.parent), "question" if name in ("questions", "ms_marco", "trivia_qa") else "claim"
        text = "{question} {choices}" if name == "truthful_qa" else f"{{{main}}}"
        settings["prompt"] = folder.prompt(text)
    return build(Reader, {"name": name, **settings})


def outcome(kind: str, file: Path) -> str:
    """The message about the file; "" when it is read, and what was read can be written."""
    reader = reader_of(kind, file)
    try:
        records = list(reader.pairs() if kind == "jsonl pairs" else reader.read())
    except DataError as error:
        return str(error)
    assert all(record.model_dump_json() for record in records)
    return ""


def placed(value: str) -> Callable[[Row], bytes]:
    """The row with this JSON in place of the question."""
    return lambda row: json.dumps(row).replace('"Why?"', value).encode()


def added(value: str) -> Callable[[Row], bytes]:
    """The row with this JSON in one more column."""
    return lambda row: json.dumps(row | {"more": 0}).replace('"more": 0', f'"more": {value}').encode()


REFUSED: dict[str, Callable[[Row], bytes]] = {
    "not UTF-8": lambda row: json.dumps(row).encode().replace(b"Why?", b"caf\xe9"),
    "half of a surrogate pair": placed('"caf\\ud800"'),
    "cut off": lambda row: json.dumps(row).encode()[:-3],
    "an empty list": placed("[]"),
    "a number": placed("5"),
    "nested 5,000 deep": added("[" * 5000 + "]" * 5000),
    "an infinite number": added("1e999"),
    "no object": lambda row: b"[]",
}
EITHER: dict[str, Callable[[Row], bytes]] = {
    "5,000 digits": added("9" * 5000),
    "NaN": added("NaN"),
    "null": placed("null"),
    "NUL": placed('"a\\u0000b"'),
}


def test_every_reader_of_files_is_tried() -> None:
    assert {kind.partition(" ")[0] for kind in ROWS} == set(names("reader")) - MADE_BY_STAGES - {"lines", "seeds"}


@pytest.mark.parametrize("what", [*REFUSED, *EITHER])
@pytest.mark.parametrize("kind", [kind for kind in ROWS if kind not in BY_LIBRARY])
def test_a_hostile_line_is_named(kind: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(json.dumps(ROWS[kind]).encode() + b"\n" + {**REFUSED, **EITHER}[what](ROWS[kind]) + b"\n")
    message = outcome(kind, file)
    if what in REFUSED or message:
        assert any(f"{file}{place}" in message for place in (":2:", ": row 2")), message
        assert len(message) < 2000


@pytest.mark.parametrize("kind", BY_LIBRARY)
def test_a_line_that_is_not_utf8_is_named_before_a_library_reads_it(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(json.dumps(ROWS[kind]).encode() + b"\n" + REFUSED["not UTF-8"](ROWS[kind]) + b"\n")
    assert f"{file}:2: not UTF-8: byte 0xe9" in outcome(kind, file)


@pytest.mark.parametrize("what", ["half of a surrogate pair", "cut off", "nested 5,000 deep", "an infinite number"])
def test_what_the_library_cannot_load_is_named_by_its_line(what: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    row = ROWS["hf prompts"]
    file.write_bytes(json.dumps(row).encode() + b"\n" + REFUSED[what](row) + b"\n")
    message = outcome("hf prompts", file)
    assert f"{file}:2:" in message
    assert len(message) < 2000


@pytest.mark.parametrize("value", ["[]", "5", "[[[]]]"])
def test_posts_that_are_no_texts(value: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(placed(value)(ROWS["sbic"]) + b"\n")
    assert f"{file}: row 1: " in outcome("sbic", file)


def test_a_ragged_table_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text('id,prompt\n1,"Why\nso?"\n2,a,b\n')
    reader = build(Reader, {"name": "hf", "path": "csv", "files": [str(file)], "format": "prompts"})
    with pytest.raises(DataError, match=r"data\.csv:4: 3 fields, but the first line has 2"):
        list(reader.read())


def test_a_list_of_prompts_that_is_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "topics.txt"
    file.write_bytes(b"lamps\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"topics\.txt:2: not UTF-8: byte 0xe9"):
        list(build(Reader, {"name": "lines", "path": str(file)}).read())


def answered(**span: Any) -> Row:
    return {"id": "1", "prompt": "Why?", "responses": [{"text": "Because.", "annotations": [{"spans": [span]}]}]}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (answered(start=4, end=2), "the span ends at 2, before its start 4"),
        (answered(start=4, end=9), "a span ends at 9, but the text has 8 characters"),
        (answered(start=-1, end=2), "greater than or equal to 0"),
        ({"id": "1", "prompt": "Why?", "responses": [{"text": "a", "score": float("nan")}]}, "finite"),
        ({"id": "0", "prompt": "Why?"}, r'the id "0" is already that of .*data\.jsonl:1'),
        ({"id": "1", "prompt": []}, "the prompt has no turn"),
    ],
)
def test_records_that_contradict_themselves(row: Row, what: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in ({"id": "0", "prompt": "Why?"}, row)))
    with pytest.raises(DataError, match=rf"data\.jsonl:2: .*{what}"):
        list(reader_of("jsonl records", file).read())


def test_a_score_that_is_no_finite_number(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"id": "1", "prompt": "Why?", "responses": [{"text": "a", "score": 1e999}]}\n')
    assert f"{file}:1: 1e999 is too large for a number" in outcome("jsonl records", file)


@pytest.mark.parametrize(
    "kind", ["jsonl prompts", "jsonl sft", "hf prompts", "ifeval", "hir", "muldimif", "verinstruct"]
)
def test_an_id_that_is_there_twice(kind: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.jsonl([ROWS[kind], ROWS[kind]])
    message = outcome(kind, tmp_path / "data.jsonl")
    assert 'the id "' in message
    assert "is already that of" in message
    reader = reader_of(kind, tmp_path / "data.jsonl").model_copy(update={"bad_rows": "drop"})
    assert len(list(reader.read())) == 1


def test_one_prompt_may_have_several_pairs(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.jsonl([ROWS["jsonl preference"], ROWS["jsonl preference"] | {"rejected": "c"}])
    reader = reader_of("jsonl preference", tmp_path / "data.jsonl")
    assert [pair.rejected for pair in reader.pairs()] == ["b", "c"]


def test_rules_without_parameters_are_a_row_that_does_not_fit(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.jsonl([ROWS["hir"] | {"ground_truth": {"instruction_id_list": ["punctuation:no_comma"]}}])
    assert 'row 1: "kwargs" is null: wants a list' in outcome("hir", tmp_path / "data.jsonl")
