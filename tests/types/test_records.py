"""Samples, responses, annotations and spans: their files, their rules, and the errors for what breaks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fgrl.base.errors import DataError
from fgrl.types import (
    Annotation,
    Criterion,
    Message,
    PairVerdict,
    Record,
    Response,
    Sample,
    Span,
    read_jsonl,
    write_jsonl,
)

SPAN = Span(
    start=2, end=5, label=-0.5, weight=2.0, reasons=["vague", "wrong"], note="Says nothing.", id="s1", answered_by=1
)
ANNOTATION = Annotation(by="Ada", spans=[SPAN], critique="Too short.", answers={"clear": 3, "why": "é🎉"}, seconds=12.5)
FULL = Sample(
    id="1",
    prompt=[Message(role="system", content="Be brief."), Message(role="user", content="Why?")],
    reference=["So.", "Thus."],
    rubric=[Criterion(text="Be kind.", check={"name": "punctuation:no_comma"})],
    responses=[
        Response(
            text="Because.", finished=False, score=0.25, by="model-a", annotations=[ANNOTATION, Annotation(by="judge")],
            meta={"seed": 3},
        ),
        Response(text="Because of it.", finished=True, by="Ada"),
    ],
    chosen=1,
    verdicts=[PairVerdict(first=1, second=0, verdict="first", reason="Longer.", by="Bob", p=0.75, agree=True)],
    meta={"topic": "x"},
)  # fmt: skip


def written(tmp_path: Path, *samples: Sample) -> list[dict[str, Any]]:
    write_jsonl(tmp_path / "samples.jsonl", samples)
    return [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text(encoding="utf-8").splitlines()]


def defaults_left(record: Record) -> list[str]:
    """Fields that have their default, of a record and of all that it holds."""
    names = [
        f"{type(record).__name__}.{name}" for name in type(record).model_fields if name not in record.model_fields_set
    ]
    for value in vars(record).values():
        for item in value if isinstance(value, list) else [value]:
            names += defaults_left(item) if isinstance(item, Record) else []
    return names


def test_every_field_survives_its_file(tmp_path: Path) -> None:
    assert defaults_left(FULL.model_copy(update={"responses": FULL.responses[:1]})) == [
        "Annotation.spans", "Annotation.critique", "Annotation.answers", "Annotation.seconds"
    ], "the other records of the example set every field"  # fmt: skip
    (line,) = written(tmp_path, FULL)
    assert list(read_jsonl(tmp_path / "samples.jsonl", Sample)) == [FULL]
    assert line["responses"][0]["annotations"][0]["spans"] == [
        {"start": 2, "end": 5, "label": -0.5, "weight": 2.0, "reasons": ["vague", "wrong"], "note": "Says nothing.",
         "id": "s1", "answered_by": 1}
    ]  # fmt: skip
    assert line["verdicts"] == [
        {"first": 1, "second": 0, "verdict": "first", "reason": "Longer.", "by": "Bob", "p": 0.75, "agree": True}
    ]


def test_a_line_holds_nothing_that_says_nothing(tmp_path: Path) -> None:
    """Defaults are left out, but 'nothing to compare' differs from 'nobody compared', and unfinished from unknown."""
    lines = written(
        tmp_path,
        Sample(id="1", prompt="Why?"),
        Sample(id="2", prompt="Why?", responses=[Response(text=""), Response(text="", finished=True)], verdicts=[]),
    )
    assert lines == [
        {"id": "1", "prompt": "Why?"},
        {"id": "2", "prompt": "Why?", "responses": [{"text": ""}, {"text": "", "finished": True}], "verdicts": []},
    ]


numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
maybe_words = st.none() | words
json_values = st.none() | st.booleans() | st.integers(-9, 9) | words | st.lists(words, max_size=2)
meta = st.dictionaries(words, json_values, max_size=2)


@st.composite
def spans(draw: Any, places: int) -> Span:
    start = draw(st.integers(0, 9))
    return Span(
        start=start, end=start + draw(st.integers(0, 9)), label=draw(numbers), weight=draw(numbers),
        reasons=draw(st.lists(words, max_size=2)), note=draw(maybe_words), id=draw(maybe_words),
        answered_by=draw(st.none() | st.integers(0, places - 1)),
    )  # fmt: skip


@st.composite
def samples(draw: Any) -> Sample:
    places = draw(st.integers(0, 3))
    annotations = st.builds(
        Annotation, by=words, spans=st.lists(spans(places), max_size=2), critique=maybe_words, answers=meta,
        seconds=st.none() | st.floats(0, 1e6),
    )  # fmt: skip
    responses = st.builds(
        Response, text=words.map(lambda text: text + "." * 18), finished=st.none() | st.booleans(), score=st.none() | numbers, by=maybe_words,
        annotations=st.lists(annotations, max_size=2), meta=meta,
    )  # fmt: skip
    pairs = [(i, j) for i in range(places) for j in range(places) if i != j]
    verdicts = [
        PairVerdict(
            first=first, second=second, verdict=draw(st.sampled_from(["first", "second", "tie", None])),
            reason=draw(maybe_words), by=draw(words), p=draw(st.none() | st.floats(0, 1)),
            agree=draw(st.none() | st.booleans()),
        )
        for first, second in (draw(st.lists(st.sampled_from(pairs), max_size=2)) if pairs else [])
    ]  # fmt: skip
    turns = st.lists(st.builds(Message, role=words, content=words), min_size=1, max_size=2)
    return Sample(
        id=draw(words), prompt=draw(words | turns), reference=draw(maybe_words | st.lists(words, max_size=2)),
        rubric=draw(st.lists(st.builds(Criterion, text=words, check=st.none() | meta), max_size=2)),
        responses=draw(st.lists(responses, min_size=places, max_size=places)),
        chosen=draw(st.none() | st.integers(0, places - 1)) if places else None,
        verdicts=draw(st.just(verdicts) | st.none()), meta=draw(meta),
    )  # fmt: skip


@given(st.lists(samples(), max_size=3))
def test_any_sample_survives_its_file(tmp_path_factory: pytest.TempPathFactory, drawn: list[Sample]) -> None:
    path = tmp_path_factory.mktemp("records") / "samples.jsonl"
    assert write_jsonl(path, drawn) == len(drawn)
    assert list(read_jsonl(path, Sample)) == drawn


# -- mistakes ----------------------------------------------------------------------------------------------------------

RESPONSES = [{"text": "a"}, {"text": "b"}]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"id": "1"}, "prompt: Field required"),
        ({"id": "1", "prompt": "p", "answer": "a"}, "answer: Extra inputs are not permitted"),
        ({"responses": [{"text": "a"}, {"txt": "b"}]}, r"responses\.1\.text: Field required"),
        ({"responses": ["a"]}, r"responses\.0: "),
        ({"responses": RESPONSES, "chosen": 2}, "chosen: there is no response 2; the sample has 2"),
        ({"responses": RESPONSES, "chosen": -1}, "chosen: .*greater than or equal to 0"),
        ({"verdicts": [{"first": 0, "second": 1, "verdict": "tie"}]}, r"verdicts\.0\.first: there is no response 0"),
        (
            {"responses": RESPONSES, "verdicts": [{"first": 0, "second": 2, "verdict": None}]},
            r"verdicts\.0\.second: there",
        ),
        (
            {"responses": RESPONSES, "verdicts": [{"first": 1, "second": 1, "verdict": None}]},
            r"compares response 1 with",
        ),
        ({"responses": RESPONSES, "verdicts": [{"first": 0, "second": 1}]}, r"verdicts\.0\.verdict: Field required"),
        ({"responses": RESPONSES, "verdicts": [{"first": 0, "second": 1, "verdict": "a"}]}, r"verdicts\.0\.verdict: "),
        (
            {"responses": RESPONSES, "verdicts": [{"first": 0, "second": 1, "verdict": "tie", "p": 2}]},
            r"verdicts\.0\.p: ",
        ),
        (
            {"responses": [{"text": "a", "annotations": [{"spans": [{"start": 3, "end": 1}]}]}]},
            r"responses\.0\.annotations\.0\.spans\.0: .*ends at 1, before its start 3",
        ),
        ({"responses": [{"text": "a", "annotations": [{"spans": [{"start": -1, "end": 1}]}]}]}, r"spans\.0\.start: "),
        ({"responses": [{"text": "a", "annotations": [{"seconds": -1}]}]}, r"annotations\.0\.seconds: "),
        (
            {"responses": [{"text": "a", "annotations": [{"spans": [{"start": 0, "end": 1, "answered_by": 1}]}]}]},
            r"answered_by of a span of responses\.0: there is no response 1",
        ),
        ({"responses": [{"text": 3}]}, r"responses\.0\.text: Input should be a valid string"),
        ({"candidates": RESPONSES}, "candidates: Extra inputs are not permitted"),
        ({"response": "a"}, "response: Extra inputs are not permitted"),
    ],
)
def test_a_line_that_makes_no_sense_is_named_with_its_place(tmp_path: Path, line: dict[str, Any], problem: str) -> None:
    known = {"id": "1", "prompt": "p"} if "id" not in line else {}
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps({"id": "0", "prompt": "fine"}) + "\n" + json.dumps(known | line) + "\n")
    with pytest.raises(DataError, match=problem) as error:
        list(read_jsonl(path, Sample))
    assert str(error.value).startswith(f"{path}:2: ")
    assert "(wanted one Sample a line)" in str(error.value)


def test_a_copy_takes_fields_only() -> None:
    assert FULL.model_copy(update={"chosen": 0}).chosen == 0
    with pytest.raises(TypeError, match="Sample has no field 'candidates': id, prompt, "):
        FULL.model_copy(update={"candidates": []})


# -- the one response --------------------------------------------------------------------------------------------------


def sample(*texts: str, chosen: int | None = None) -> Sample:
    return Sample(id="s", prompt="p", responses=[Response(text=text) for text in texts], chosen=chosen)


def test_the_chosen_response_is_the_only_one_unless_one_is_chosen() -> None:
    assert sample().chosen_response is None
    assert sample("a").chosen_response == Response(text="a")
    assert sample("a", "b", chosen=1).chosen_response == Response(text="b")
    with pytest.raises(DataError, match="sample s has 2 responses of which none is chosen"):
        _ = sample("a", "b").chosen_response


def test_another_response_can_be_chosen_in_a_copy() -> None:
    better = Response(text="c")
    assert sample("a", "b").with_chosen(better) == sample("a", "b", "c", chosen=2)
    assert sample("a", "b", chosen=0).with_chosen(better) == sample("c", "b", chosen=0)
    assert sample().with_chosen(better) == sample("c", chosen=0)
    compared = sample("a", "b").model_copy(update={"verdicts": [PairVerdict(first=0, second=1, verdict="tie")]})
    assert compared.only_with(better, id="t") == sample("c", chosen=0).model_copy(update={"id": "t"})


def test_scores_go_to_the_responses_in_their_order() -> None:
    scored = sample("a", "b").with_scores([0.5, None])
    assert [response.score for response in scored.responses] == [0.5, None]
    assert [response.score for response in scored.with_scores([None, 1.0]).responses] == [None, 1.0]
    for scores in ([1.0], [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="zip"):
            sample("a", "b").with_scores(scores)


def test_spans_of_all_annotations() -> None:
    first, second = Span(start=0, end=1), Span(start=0, end=1, label=-1.0)
    response = Response(text="ab", annotations=[Annotation(by="a", spans=[first]), Annotation(by="b", spans=[second])])
    assert response.spans == [first, second]


def test_a_span_needs_an_order() -> None:
    assert Span(start=1, end=1).label == 1.0
    with pytest.raises(ValidationError, match="ends at 0, before its start 1"):
        Span(start=1, end=0)
