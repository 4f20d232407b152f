"""Queries about documents, from answers in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from critique_answers import PROMPTS, asker, replay
from training_helpers import a_run

from fgrl.components.annotators.improvement_chain import ImprovementChain
from fgrl.components.annotators.queries import Queries
from fgrl.components.readers.jsonl import JsonLines
from fgrl.components.rewriters.delete import Delete
from fgrl.experiments.stages.annotate import AnnotateStage
from fgrl.kinds import Expected
from fgrl.types import Sample, write_jsonl

PROMPT = "D <{document}> N {count}"
TWO = {"queries": ["Why a mill?", " How old is it? "]}


def document(text: str, **more: Any) -> Sample:
    return Sample(**{"id": "d", "prompt": text, "meta": {"domain": "news"}, **more})


def test_each_query_becomes_a_sample_with_the_document(tmp_path: Path) -> None:
    annotator = asker(Queries, tmp_path, PROMPT, {"contains": "D <A mill.> N 2", "answer": TWO}, count=2)
    before = document("A mill.", reference="no", responses=[])
    assert annotator.annotate([before]) == [
        Sample(id="d/0", prompt="Why a mill?", meta={"domain": "news", "document": "A mill."}),
        Sample(id="d/1", prompt="How old is it?", meta={"domain": "news", "document": "A mill."}),
    ]
    assert before.meta == {"domain": "news"}
    assert annotator.counts() == {
        "queries": 2, "documents": 1, "documents without queries": 0,
        "questions": 1, "answered": 1, "cached": 0, "asked again": 0, "repaired": 0, "failed": 0,
    }  # fmt: skip
    assert annotator.asks_at_most(Expected(7)) == 7
    (request,) = annotator.asks([before])
    assert request.json_schema is not None
    assert request.json_schema["properties"]["queries"]["maxItems"] == 2


def test_the_document_is_an_entry_of_meta_where_there_is_one(tmp_path: Path) -> None:
    annotator = asker(
        Queries, tmp_path, PROMPT, {"contains": "D <The text.>", "answer": TWO}, count=2, document="source"
    )
    (first, _second) = annotator.annotate([document("A title", meta={"source": "The text."})])
    assert first.meta == {"source": "The text."}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"queries": ["a", "b", "c"]}, "it has 3 queries, and 2 are wanted"),
        ({"queries": ["a", " "]}, "a query is empty"),
        ({"queries": ["Why?", "why? "]}, "two queries are the same"),
        ({"questions": ["a", "b"]}, "does not fit"),
        ("1. a\n2. b", "there is no JSON"),
    ],
)
def test_an_answer_that_cannot_be_used_is_requested_again_and_then_missing(
    tmp_path: Path, answer: Any, reason: str
) -> None:
    lines = ({"contains": reason, "answer": TWO}, {"any": True, "answer": answer})
    again = asker(Queries, tmp_path, PROMPT, *lines, count=2, tries=2)
    assert len(again.annotate([document("x")])) == 2
    assert again.counts()["asked again"] == 1
    never = asker(Queries, tmp_path, PROMPT, lines[1], count=2, tries=2)
    assert never.annotate([document("x")]) == []
    assert (never.counts()["documents without queries"], never.counts()["failed: unreadable"]) == (1, 1)


def test_a_bare_list_is_read(tmp_path: Path) -> None:
    annotator = asker(Queries, tmp_path, PROMPT, {"any": True, "answer": TWO["queries"]}, count=2)
    assert [one.prompt for one in annotator.annotate([document("x")])] == ["Why a mill?", "How old is it?"]


def test_long_documents_are_left_out_or_cut(tmp_path: Path) -> None:
    given = [document("one  two\nthree four", id="long"), document("one", id="short"), document(" ", id="empty")]
    dropping = asker(Queries, tmp_path, PROMPT, {"any": True, "answer": TWO}, count=2, max_words=3)
    assert {one.id for one in dropping.annotate(given)} == {"short/0", "short/1"}
    assert (dropping.counts()["documents that are too long"], dropping.counts()["empty documents"]) == (1, 1)
    cutting = asker(Queries, tmp_path, PROMPT, {"any": True, "answer": TWO}, count=2, max_words=3, longer="cut")
    assert cutting.annotate(given)[0].meta["document"] == "one  two\nthree"
    assert cutting.counts()["documents that were cut"] == 1


def test_a_stage_after_it_expects_a_sample_per_query(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "documents.jsonl", [document("x", id="1"), document("y", id="2")])
    annotator = asker(Queries, tmp_path, PROMPT, {"any": True, "answer": TWO}, count=2)
    stage = AnnotateStage(data=JsonLines(path=str(tmp_path / "documents.jsonl")), annotator=annotator)
    assert stage.expects(a_run(tmp_path)) == Expected(4, 0)  # type: ignore[arg-type]
    assert stage.estimate(a_run(tmp_path))["calls"]["calls"] == 2  # type: ignore[arg-type]
    chains = AnnotateStage(data=stage.data, annotator=ImprovementChain(rewriter=Delete()))
    assert chains.expects(a_run(tmp_path)) is None  # type: ignore[arg-type]


def test_the_prompt_that_ships_asks_for_the_count(tmp_path: Path) -> None:
    annotator = Queries(client=replay(tmp_path), prompt=str(PROMPTS / "queries_from_document.txt"))
    (request,) = annotator.asks([document("A mill.")])
    assert "Invent 5 queries" in request.messages[0].content
    assert request.messages[0].content.endswith("## Document\n\nA mill.")
