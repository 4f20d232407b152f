"""Readers that take samples from other readers: put into a prompt file, or mixed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from training_helpers import a_run

from fgrl.base.console import Console
from fgrl.base.errors import DataError
from fgrl.components.readers.jsonl import JsonLines
from fgrl.components.readers.lines import Lines
from fgrl.components.readers.mixed import Mixed
from fgrl.components.readers.with_prompt import WithPrompt
from fgrl.data.formats.columns import Columns
from fgrl.kinds import Expected
from fgrl.kinds.reader import expected
from fgrl.types import Message, Pair, Sample, write_jsonl

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
    assert expected(reader, a_run(tmp_path)) == Expected(1, 0)  # type: ignore[arg-type]


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
    assert expected(reader, a_run(tmp_path)) == Expected(3, 0)  # type: ignore[arg-type]
    part = Mixed(of={"yelp": one, "news": two}, skip=1, limit=1, label="source")
    assert [(sample.id, sample.meta["source"]) for sample in part.read()] == [("yelp/1", "yelp")]
    assert expected(part, a_run(tmp_path)) == Expected(1)  # type: ignore[arg-type]


def two_readers(folder: Path) -> dict[str, JsonLines]:
    counts = {"chat": 300, "math": 100}
    return {
        name: stored(folder, name, *(Sample(id=str(row), prompt=f"{name} {row}?") for row in range(count)))
        for name, count in counts.items()
    }


def test_weights_draw_the_same_rows_every_time_in_these_proportions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readers = two_readers(tmp_path)
    reader = Mixed(of=readers, weights={"chat": 1, "math": 1})
    reader.setup(a_run(tmp_path, console=Console()))
    ids = [sample.id for sample in reader.read()]
    taken = Counter(name.partition("/")[0] for name in ids)
    assert ids == [sample.id for sample in reader.read()]
    assert max(taken.values()) == taken["math"] == 100, "it stops where the first reader has no rows left"
    assert ids[-1] == "math/99"
    assert 70 < taken["chat"] < 130
    assert [name for name in ids if name.startswith("chat")] == [f"chat/{row}" for row in range(taken["chat"])]
    assert f"mixed: {len(ids)} rows: {taken['chat']} of chat (which has 300), 100 of math (which has 100)" in (
        capsys.readouterr().err
    )
    assert expected(reader, a_run(tmp_path)) == Expected(len(ids), 0)  # type: ignore[arg-type]
    scaled = Mixed(of=readers, weights={"chat": 0.5, "math": 0.5})
    assert [sample.id for sample in scaled.read()] == ids
    other = Mixed(of=readers, weights={"chat": 1, "math": 1}, mixing_seed=1)
    assert [sample.id for sample in other.read()] != ids
    part = Mixed(of=readers, weights={"chat": 1, "math": 1}, skip=10, limit=5)
    assert [sample.id for sample in part.read()] == ids[10:15]


def test_a_reader_without_rows_left_starts_again_until_all_are_exhausted(tmp_path: Path) -> None:
    reader = Mixed(of=two_readers(tmp_path), weights={"chat": 1, "math": 3}, until="all_exhausted")
    ids = [sample.id for sample in reader.read()]
    assert len(ids) == len(set(ids))
    assert {f"chat/{row}" for row in range(300)} <= set(ids)
    assert {f"math/{row}#{again}" for row in range(100) for again in (2, 3, 4, 5, 6)} <= set(ids)
    repeated = next(sample for sample in reader.read() if sample.id == "math/7#2")
    assert repeated.prompt == "math 7?"
    assert expected(reader, a_run(tmp_path)) == Expected(len(ids), 0)  # type: ignore[arg-type]


def test_pairs_are_mixed_like_samples(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "p.jsonl", [Pair(id="1", prompt="Why?", chosen="a", rejected="b")])
    pairs = JsonLines(path=str(tmp_path / "p.jsonl"))
    reader = Mixed(of={"one": pairs, "two": pairs}, system="Be brief.")
    assert [(pair.id, pair.chosen, pair.meta) for pair in reader.pairs()] == [
        ("one/1", "a", {"domain": "one"}), ("two/1", "a", {"domain": "two"}),
    ]  # fmt: skip
    assert next(iter(reader.pairs())).prompt == [
        Message(role="system", content="Be brief."), Message(role="user", content="Why?"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"chat": 1, "maths": 1}}, 'no reader is called "maths"; did you mean "math"'),
        ({"weights": {"chat": 1}}, 'weights: "math" has none'),
        ({"until": "all_exhausted"}, "until: goes with `weights`"),
        ({"mixing_seed": 3}, "mixing_seed: goes with `weights`"),
        ({"weights": {"chat": 1, "math": 0}}, "greater than 0"),
    ],
)
def test_weights_that_fit_no_readers_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mixed(of=two_readers(tmp_path), **settings)


def test_a_reader_without_rows_cannot_be_drawn_from(tmp_path: Path) -> None:
    class Empty(JsonLines):
        def read(self) -> Iterator[Sample]:
            return iter(())

    readers = {
        "chat": stored(tmp_path, "chat", Sample(id="1", prompt="a")),
        "math": Empty(path=str(tmp_path / "chat.jsonl")),
    }
    with pytest.raises(DataError, match='the reader "math" has no rows to draw from'):
        Mixed(of=readers, weights={"chat": 1, "math": 1}).read()


def test_a_system_prompt_comes_before_prompts_that_have_none(tmp_path: Path) -> None:
    system, user = Message(role="system", content="Be brief."), Message(role="user", content="Why?")
    rows = [
        {"prompt": "Why?"}, {"prompt": [{"role": "user", "content": "Why?"}]},
        {"prompt": [{"role": "system", "content": "Be long."}, {"role": "user", "content": "Why?"}]},
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "lines.txt").write_text("Why?\n")
    table = JsonLines(path=str(tmp_path / "rows.jsonl"), format="prompts", system="Be brief.")
    own = [Message(role="system", content="Be long."), user]
    assert [sample.prompt for sample in table.read()] == [[system, user], [system, user], own]
    lines = Lines(path=str(tmp_path / "lines.txt"), template="{line}", system="Be brief.")
    assert [sample.prompt for sample in lines.read()] == [[system, user]]
    records = stored(tmp_path, "records", Sample(id="1", prompt="Why?"), system="Be brief.")
    assert [sample.prompt for sample in records.read()] == [[system, user]]
    with pytest.raises(ValueError, match="is empty"):
        Lines(path=str(tmp_path / "lines.txt"), system=" ")
