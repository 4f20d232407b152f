"""Readers that take samples from other readers: put into a prompt file, or mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from training_helpers import a_run

from fgrl.components.readers.jsonl import JsonLines
from fgrl.components.readers.mixed import Mixed
from fgrl.components.readers.with_prompt import WithPrompt
from fgrl.data.formats.columns import Columns
from fgrl.errors import DataError
from fgrl.kinds import Expected
from fgrl.types import Message, Sample, write_jsonl

ANSWER = Path(__file__).resolve().parents[3] / "prompts" / "answer_from_document.txt"


def stored(folder: Path, name: str, *samples: Sample, **options: Any) -> JsonLines:
    write_jsonl(folder / f"{name}.jsonl", samples)
    return JsonLines(path=str(folder / f"{name}.jsonl"), **options)


def test_a_query_and_its_document_become_one_prompt(tmp_path: Path) -> None:
    query = Sample(id="1", prompt="Why {so}?", meta={"document": "It {is} so.", "domain": "news"})
    reader = WithPrompt(data=stored(tmp_path, "q", query), prompt=str(ANSWER))
    reader.setup(a_run(tmp_path))
    (after,) = reader.read()
    assert isinstance(after.prompt, str)
    assert after.prompt.endswith("## Document\n\nIt {is} so.\n\n## Query\n\nWhy {so}?")
    assert after.meta == {"question": "Why {so}?", "document": "It {is} so.", "domain": "news"}
    assert reader.expects(a_run(tmp_path)) == Expected(1)  # type: ignore[arg-type]


def test_turns_and_other_values_of_meta(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("[system]\nHints: {hints}\n[user]\n{prompt}")
    chat = [
        Message(role="user", content="A?"),
        Message(role="assistant", content="B."),
        Message(role="user", content="C?"),
    ]
    given = Sample(id="1", prompt=chat, meta={"hints": ["a", "é"], "question": "kept"})
    (after,) = WithPrompt(data=stored(tmp_path, "q", given), prompt=str(tmp_path / "p.txt")).read()
    assert after.prompt == [
        Message(role="system", content='Hints: ["a", "é"]'),
        Message(role="user", content="[user]\nA?\n\n[assistant]\nB.\n\n[user]\nC?"),
    ]
    assert after.meta["question"] == "kept"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{prompt} {document}", r"sample 1: .*unknown placeholder \{document\}"),
        ("Go.", r"lacks the placeholder \{prompt\}"),
    ],
)
def test_prompt_files_that_do_not_fit_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.txt").write_text(text)
    reader = WithPrompt(data=stored(tmp_path, "q", Sample(id="1", prompt="A?")), prompt=str(tmp_path / "p.txt"))
    with pytest.raises(DataError, match=message):
        list(reader.read())


def test_samples_of_several_sources_have_their_names(tmp_path: Path) -> None:
    one = stored(tmp_path, "one", Sample(id="0", prompt="a"), Sample(id="1", prompt="b", meta={"x": 1}))
    (tmp_path / "two.jsonl").write_text(json.dumps({"text": "c"}) + "\n")
    two = JsonLines(path=str(tmp_path / "two.jsonl"), format="prompts", columns=Columns(prompt="text"))
    reader = Mixed(of={"yelp": one, "news": two})
    reader.setup(a_run(tmp_path))
    assert [(sample.id, sample.prompt, sample.meta) for sample in reader.read()] == [
        ("yelp/0", "a", {"domain": "yelp"}), ("yelp/1", "b", {"x": 1, "domain": "yelp"}), ("news/0", "c", {"domain": "news"}),
    ]  # fmt: skip
    assert reader.expects(a_run(tmp_path)) == Expected(3)  # type: ignore[arg-type]
    part = Mixed(of={"yelp": one, "news": two}, skip=1, limit=1, label="source")
    assert [(sample.id, sample.meta["source"]) for sample in part.read()] == [("yelp/1", "yelp")]
    assert part.expects(a_run(tmp_path)) == Expected(1)  # type: ignore[arg-type]
