"""TriviaQA in the hub's columns, and worked examples in prompts."""

from __future__ import annotations

import pytest
from datasets import Features, Sequence, Value
from pydantic import ValidationError
from reading_helpers import PROMPTS, Folder, read

from fgrl.base.errors import DataError
from fgrl.components.readers.trivia_qa import TriviaColumns, TriviaQa
from fgrl.data.questions.shots import Shots

TEXTS = Sequence(Value("string"))
FEATURES = Features(
    {
        "question": Value("string"),
        "question_id": Value("string"),
        "question_source": Value("string"),
        "entity_pages": Sequence({name: Value("string") for name in ("doc_source", "filename", "title", "wiki_context")}),
        "search_results": Sequence(
            {name: Value("string") for name in ("description", "filename", "title", "url", "search_context")}
            | {"rank": Value("int32")}
        ),
        "answer": {
            "aliases": TEXTS,
            "normalized_aliases": TEXTS,
            "matched_wiki_entity_name": Value("string"),
            "normalized_matched_wiki_entity_name": Value("string"),
            "normalized_value": Value("string"),
            "type": Value("string"),
            "value": Value("string"),
        },
    }
)  # fmt: skip
"""As `mandarjoshi/trivia_qa`, `rc`, declares them."""

SHOTS = "{examples}\n\nQ: {question}"
PLAIN, SEARCH = "Q: {question}", "{context}\nQ: {question}"


def row(number=1, value="Sinclair Lewis", aliases=("Lewis, Sinclair", "Sinclair Lewis"), searched=True):
    found = ["He won in 1930."] if searched else []
    return {
        "question": f"Who was number {number}?",
        "question_id": f"tc_{number}",
        "question_source": "http://www.triviacountry.com/",
        "entity_pages": {
            "doc_source": ["TagMe"], "filename": ["a.txt"], "title": ["Nobel Prize"], "wiki_context": ["A long\narticle."],
        },
        "search_results": {
            "description": found, "filename": found and ["b.txt"], "rank": found and [0], "title": found and ["Lewis"],
            "url": found and ["http://n.org"], "search_context": found and ["A whole page."],
        },
        "answer": {
            "aliases": list(aliases), "normalized_aliases": [alias.lower() for alias in aliases],
            "matched_wiki_entity_name": value, "normalized_matched_wiki_entity_name": value.lower(),
            "normalized_value": value.lower(), "type": "WikipediaEntity", "value": value,
        },
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def trivia(folder):
    def make(*rows, prompt=PLAIN, **fields):
        return TriviaQa(**folder.parquet(list(rows), FEATURES), prompt=folder.prompt(prompt), **fields)

    return make


def test_a_row_without_search(trivia):
    (sample,), said = read(trivia(row(), row(1)))
    assert sample.id == "tc_1"
    assert sample.prompt[0].content == "Q: Who was number 1?"
    assert sample.reference == ["Sinclair Lewis", "Lewis, Sinclair"]
    assert sample.meta == {"question": "Who was number 1?", "kind": "WikipediaEntity"}
    assert "1 that repeat another" in said[0]
    assert read(trivia(row(), aliases=False))[0][0].reference == ["Sinclair Lewis"]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, "[1] (http://n.org) He won in 1930."),
        ({"context": "search_results.search_context"}, "[1] (http://n.org) A whole page."),
        ({"context": "entity_pages.wiki_context", "url": "entity_pages.title"}, "[1] (Nobel Prize) A long article."),
    ],
)
def test_a_row_with_search(columns, text, trivia):
    (sample,), _ = read(trivia(row(), prompt=SEARCH, columns=TriviaColumns(**columns)))
    assert sample.prompt[0].content == f"{text}\nQ: Who was number 1?"


def test_a_question_whose_first_row_has_no_passages_is_read_from_the_second(trivia):
    (sample,), _ = read(trivia(row(searched=False), row(), prompt=SEARCH, no_context="drop"))
    assert "He won" in sample.prompt[0].content
    with pytest.raises(DataError, match=r"`config: rc.web` has search results"):
        read(trivia(row(searched=False), prompt=SEARCH))


def test_the_test_split_has_no_answers(trivia):
    with pytest.raises(DataError, match=r"1 without an answer.*split: validation"):
        read(trivia(row(value="<unk>", aliases=[])))


@pytest.mark.parametrize(
    ("gone", "key"),
    [("question", "columns.question"), ("answer.aliases", "columns.aliases"), ("answer", "columns.answers")],
)
def test_a_missing_column_shows_the_first_row_and_the_key_to_set(gone, key, folder):
    one = row()
    inside = one
    *outer, last = gone.split(".")
    for name in outer:
        inside = inside[name]
    del inside[last]
    with pytest.raises(DataError, match=rf"Set `{key}` to (?s:.*)question_source +\"http://www") as caught:
        read(TriviaQa(**folder.jsonl([one]), prompt=folder.prompt(PLAIN)))
    assert "reader `trivia_qa`" in str(caught.value)


# -- worked examples ---------------------------------------------------------------------------------------------------


def test_examples_come_from_another_split(folder):
    folder.parquet([row(n, f"A{n}", []) for n in range(9)], FEATURES, "train-00000-of-00001")
    folder.parquet([row(n, f"B{n}", []) for n in (100, 101)], FEATURES, "validation-00000-of-00001")

    def prompts(**shots):
        reader = TriviaQa(path=str(folder.path), prompt=folder.prompt(SHOTS), shots=Shots(split="train", **shots))
        return [sample.prompt[0].content for sample in read(reader)[0]]

    found = prompts()
    assert [text.endswith(f"\n\nQ: Who was number {n}?") for text, n in zip(found, (100, 101), strict=True)] == [
        True
    ] * 2
    assert len({text.rpartition("Q: ")[0] for text in found}) == 1  # the same examples for all
    shown = found[0].split("\n\n")[:-1]
    assert len(shown) == len(set(shown)) == 3
    for example in shown:
        number = example.split("?")[0].split()[-1]
        assert example == f"Question: Who was number {number}?\nAnswer: A{number}"
    assert prompts() == found
    assert prompts(seed=1) != found
    example = prompts(count=1, template="{answer} <- {question}")[0].split("\n\n")[0]
    assert example in [f"A{n} <- Who was number {n}?" for n in range(9)]


def test_a_question_is_never_its_own_example(trivia):
    samples, _ = read(trivia(*(row(n, f"A{n}", []) for n in range(4)), prompt=SHOTS, shots=Shots(count=3)))
    for number, sample in enumerate(samples):
        text = sample.prompt[0].content
        assert f"A{number}" not in text
        assert text.count("Answer: ") == 3


def test_rows_without_an_answer_are_no_examples(trivia):
    rows = [row(1, "A1", []), row(2, "No answer present", []), row(3, "<unk>", []), row(4, "A4", [])]
    samples, _ = read(trivia(*rows, prompt=SHOTS, shots=Shots(count=1)))
    assert [sample.id for sample in samples] == ["tc_1", "tc_4"]
    assert "Answer: A4" in samples[0].prompt[0].content
    with pytest.raises(DataError, match=r"1 rows can be shown as examples of another question, but `shots.count` is 2"):
        read(trivia(*rows, prompt=SHOTS, shots=Shots(count=2)))


@pytest.mark.parametrize(
    ("shots", "message"),
    [
        ({"template": "{question}"}, r"wants \{answer\}"),
        ({"template": "{claim} {answer}"}, r"unknown placeholder \{claim\}"),
        ({"files": ["x.jsonl"]}, "shots.files: goes with files"),
    ],
)
def test_shots_that_cannot_be(shots, message):
    with pytest.raises(ValidationError, match=message):
        TriviaQa(prompt="x.txt", shots=Shots(**shots))


def test_examples_come_from_other_files(folder):
    other = folder.jsonl([row(7, "A7", [])], "other")["files"]
    where = folder.jsonl([row(1), row(2)])
    reader = TriviaQa(**where, prompt=folder.prompt(SHOTS), shots=Shots(count=1, files=other), expect_rows=2)
    assert ["A7" in sample.prompt[0].content for sample in read(reader)[0]] == [True, True]
    with pytest.raises(ValidationError, match=r"name shots\.files"):
        TriviaQa(**where, prompt="x.txt", shots=Shots(split="train"))


def test_the_shipped_prompts_serve(folder):
    where = folder.jsonl([row(n, f"A{n}", []) for n in range(4)])
    for name in ("trivia_qa.txt", "trivia_qa_search.txt"):
        samples, _ = read(TriviaQa(**where, prompt=str(PROMPTS / name), shots=Shots(count=3)))
        assert [turn.role for turn in samples[0].prompt] == ["system", "user"]
        assert samples[0].prompt[1].content.endswith("Question: Who was number 0?\nAnswer:")
        assert ("He won in 1930" in samples[0].prompt[0].content) == ("search" in name)
