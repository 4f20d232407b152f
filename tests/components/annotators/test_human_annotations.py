"""Annotations of people, from files in both forms and from a column, and what is refused or counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from critique_answers import quoted, sample, stage_key
from pydantic import ValidationError
from training_helpers import a_run

from fgrl.base.errors import DataError
from fgrl.components.annotators.human import HumanAnnotations
from fgrl.types import Annotation, PairVerdict, Response, Sample, Span, write_jsonl

TEXT = "The mill stands “by the sea”."
DATA = [sample(TEXT, "Another mill.", id="a"), sample("First.", "Second.", id="b", chosen=None)]


def people(folder: Path, *lines: Any, limit: int | None = None, **options: Any) -> HumanAnnotations:
    (folder / "people.jsonl").write_text(
        "\n\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    annotator = HumanAnnotations(path=str(folder / "people.jsonl"), **options)
    annotator.setup(a_run(folder, limit=limit))
    return annotator


def test_short_lines_become_annotations_with_spans(tmp_path):
    annotator = people(
        tmp_path,
        {"id": "a", "good": ['"by the sea"'], "poor": ["mill"], "critique": "Vivid.", "by": "ada", "seconds": 4.5},
        {"id": "a", "by": "bo", "response": " Another mill.\n"},
        {"id": "b", "response": "Second.", "poor": ["Second"]},
    )
    before = [one.model_copy(deep=True) for one in DATA]
    first, second = annotator.annotate(DATA)
    assert before == DATA
    assert quoted(first.responses[0]) == [("“by the sea”", 1.0), ("mill", -1.0)]
    (by_ada,) = first.responses[0].annotations
    assert (by_ada.by, by_ada.critique, by_ada.seconds) == ("ada", "Vivid.", 4.5)
    assert [record["kind"] for record in first.responses[0].meta["matches"]["ada"]] == ["normalised", "exact"]
    assert [one.by for one in first.responses[1].annotations] == ["bo"]
    assert second.responses[0].annotations == []
    assert [(one.by, one.critique) for one in second.responses[1].annotations] == [("human", None)]
    assert annotator.counts() == {
        "annotations": 3, "responses": 3,
        "quotes": 3, "quotes: exact": 2, "quotes: normalised": 1, "unmatched quotes": 0, "unmatched rate": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("before", ["", " ", "\n\n"])
def test_spans_of_a_record_mark_the_same_words_where_white_space_differs(tmp_path, before):
    marked = Response(text=" The mill.", annotations=[Annotation(by="ada", spans=[Span(start=5, end=9)])])
    write_jsonl(tmp_path / "records.jsonl", [Sample(id="a", prompt="x", responses=[marked])])
    annotator = HumanAnnotations(path=str(tmp_path / "records.jsonl"))
    annotator.setup(a_run(tmp_path))
    (annotated,) = annotator.annotate([sample(before + "The mill.", id="a")])
    assert quoted(annotated.responses[0]) == [("mill", 1.0)]


def test_records_of_annotated_samples_are_read_back(tmp_path):
    spans = [Span(start=0, end=3, label=-1, note="which?"), Span(start=4, end=8)]
    marked = Response(text=TEXT, annotations=[Annotation(by="ada", spans=spans), Annotation(critique="Fine.")])
    write_jsonl(
        tmp_path / "records.jsonl", [Sample(id="a", prompt="Other words.", responses=[Response(text="?"), marked])]
    )
    annotator = HumanAnnotations(path=str(tmp_path / "records.jsonl"))
    annotator.setup(a_run(tmp_path))
    first, second = annotator.annotate(DATA)
    assert [(one.by, one.spans) for one in first.responses[0].annotations] == [("ada", spans), ("human", [])]
    assert second == DATA[1]


def test_annotations_that_are_there_already_stay(tmp_path):
    model = Annotation(by="model", critique="Short.")
    given = sample(responses=[Response(text=TEXT, annotations=[model], meta={"matches": {"model": []}})], id="a")
    (after,) = people(tmp_path, {"id": "a", "good": ["mill"]}).annotate([given])
    assert [one.by for one in after.responses[0].annotations] == ["model", "human"]
    assert set(after.responses[0].meta["matches"]) == {"model", "human"}


@pytest.mark.parametrize(
    ("line", "message", "count"),
    [
        ({"id": "z"}, "the data have no sample 'z'", "of unknown samples"),
        ({"id": "a", "response": "No."}, "sample 'a' has no response 'No.'", "of unknown responses"),
        ({"id": "b"}, "it names no response, and sample 'b' has 2, none chosen", "of unknown responses"),
        ({"id": "a", "good": ["the ocean"]}, "the quote 'the ocean' is not in the response", "unmatched quotes"),
    ],
)
def test_what_does_not_match_is_refused_with_its_line_or_counted(tmp_path, line, message, count):
    fits = {"id": "a", "by": "bo", "good": ["mill"]}
    with pytest.raises(DataError, match=r"people.jsonl:3: " + message):
        people(tmp_path, fits, line).annotate(DATA)
    annotator = people(tmp_path, fits, line, refuse=False)
    first, _second = annotator.annotate(DATA)
    assert quoted(first.responses[0]) == [("mill", 1.0)]
    assert annotator.counts()[count] == 1


def test_a_quick_trial_does_not_refuse_annotations_of_samples_that_it_did_not_read(tmp_path):
    annotator = people(tmp_path, {"id": "a", "good": ["mill"]}, {"id": "z"}, limit=1)
    annotator.annotate(DATA[:1])
    assert annotator.counts()["of unknown samples"] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "wants a JSON object"),
        ({"good": ["mill"]}, "id: Field required"),
        ({"id": "a", "good": "mill"}, "quotes.good: Input should be a valid list"),
        ({"id": "a", "bad": ["mill"]}, r"bad: Extra inputs.*\(a short line has: id, response, by, critique, seconds, good, poor\)"),
        ({"id": "a", "seconds": -1}, "seconds: Input should be greater"),
        ({"id": "a", "prompt": "p", "responses": [{"text": "x", "annotations": [{"spans": [{"start": 0, "end": 9}]}]}]}, "a span ends at 9"),
    ],
)  # fmt: skip
def test_lines_that_are_no_annotations_are_refused_in_every_case(tmp_path, line, message):
    with pytest.raises(DataError, match=r"people.jsonl:1: .*" + message if line != "{" else message):
        people(tmp_path, line, refuse=False).annotate(DATA)


def test_one_person_annotates_a_response_once(tmp_path):
    with pytest.raises(DataError, match=r"people.jsonl:3: a second annotation by 'human' of one response"):
        people(tmp_path, {"id": "a"}, {"id": "a", "response": TEXT}, refuse=False).annotate(DATA)


def test_a_span_behind_the_text_that_only_white_space_made_equal_is_refused(tmp_path):
    longer = Response(text=TEXT + "   ", annotations=[Annotation(spans=[Span(start=0, end=len(TEXT) + 2)])])
    write_jsonl(tmp_path / "records.jsonl", [Sample(id="a", prompt="p", responses=[longer])])
    with pytest.raises(DataError, match="ends behind the response's last character"):
        HumanAnnotations(path=str(tmp_path / "records.jsonl")).annotate(DATA)


def test_a_column_holds_critiques(tmp_path):
    given = [sample(TEXT, meta={"feedback": "Which mill?"}, id="1"), sample(TEXT, meta={"feedback": " "}, id="2")]
    annotator = HumanAnnotations(column="feedback", by="reader")
    first, second = annotator.annotate(given)
    assert [(one.by, one.critique, one.spans) for one in first.responses[0].annotations] == [
        ("reader", "Which mill?", [])
    ]
    assert second == given[1]
    assert annotator.counts() == {"annotations": 1, "samples without it": 1, "responses": 1}


def test_settings_that_cannot_be_meant_are_refused_and_the_file_is_part_of_the_key(tmp_path):
    for options in ({}, {"path": "x", "column": "y"}):
        with pytest.raises(ValidationError, match="needs either `path`"):
            HumanAnnotations(**options)
    with pytest.raises(ValidationError, match="a short line has this key already"):
        HumanAnnotations(column="c", labels={"critique": 1.0})
    annotator = people(tmp_path, {"id": "a"})
    before = stage_key(tmp_path, annotator)
    (tmp_path / "people.jsonl").write_text('{"id": "b"}')
    assert stage_key(tmp_path, annotator) != before
    assert annotator.asks(DATA) == []


def of_records(folder: Path, *records: Sample, **options: Any) -> HumanAnnotations:
    write_jsonl(folder / "records.jsonl", records)
    annotator = HumanAnnotations(path=str(folder / "records.jsonl"), **options)
    annotator.setup(a_run(folder))
    return annotator


def test_of_responses_with_the_same_text_the_one_at_the_same_place_is_meant(tmp_path):
    marked = [Response(text="Same.", annotations=[Annotation(by="ada", critique=str(place))]) for place in range(3)]
    data = sample("Same.", "Same.", "Same.", id="a")
    (after,) = of_records(tmp_path, Sample(id="a", prompt="p", responses=marked)).annotate([data])
    assert [[one.critique for one in response.annotations] for response in after.responses] == [["0"], ["1"], ["2"]]


def test_comparisons_are_attached_when_asked_for(tmp_path):
    """The file has the two responses of `b` in the other order; the verdict of a judge stays, an earlier one of ada is replaced."""
    record = Sample(
        id="b",
        prompt="p",
        responses=[Response(text="Second."), Response(text="First.")],
        verdicts=[PairVerdict(first=0, second=1, verdict="first", by="ada", reason="r"), PairVerdict(first=1, second=0, verdict="tie")],
    )  # fmt: skip
    before = [
        PairVerdict(first=0, second=1, verdict="tie", by="ada"),
        PairVerdict(first=0, second=1, verdict="first", by="judge"),
    ]
    data = [DATA[0], DATA[1].model_copy(update={"verdicts": before})]
    annotator = of_records(tmp_path, record, verdicts=True)
    first, second = annotator.annotate(data)
    assert first == DATA[0]
    assert second.verdicts == [
        before[1],
        PairVerdict(first=1, second=0, verdict="first", by="ada", reason="r"),
        PairVerdict(first=0, second=1, verdict="tie", by="human"),
    ]
    assert annotator.counts() == {"annotations": 0, "verdicts": 2, "responses": 0}
    assert of_records(tmp_path, record).annotate(data)[1].verdicts == before


def test_comparisons_that_do_not_fit_are_refused(tmp_path):
    texts = [Response(text="First."), Response(text="Second."), Response(text="Third.")]
    unknown = Sample(
        id="b", prompt="p", responses=texts, verdicts=[PairVerdict(first=0, second=2, verdict="tie", by="ada")]
    )
    with pytest.raises(DataError, match=r"records.jsonl:1: sample 'b' has no response 'Third.'"):
        of_records(tmp_path, unknown, verdicts=True).annotate(DATA)
    lenient = of_records(tmp_path, unknown, verdicts=True, refuse=False)
    assert lenient.annotate(DATA)[1].verdicts is None
    assert lenient.counts()["of unknown responses"] == 1
    twice = unknown.model_copy(
        update={"verdicts": [PairVerdict(first=a, second=b, verdict="tie", by="ada") for a, b in ((0, 1), (1, 0))]}
    )
    with pytest.raises(DataError, match="a second verdict by 'ada'"):
        of_records(tmp_path, twice, verdicts=True).annotate(DATA)
    with pytest.raises(ValidationError, match="comparisons come from a file"):
        HumanAnnotations(column="feedback", verdicts=True)
