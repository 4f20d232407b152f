"""Label Studio's format: there and back, what cannot be kept, exports as Label Studio writes them, the configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from annotated_samples import A, B, annotated, span
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.feedback.page_settings import load_settings
from fgrl.pages.annotation.label_studio import from_tasks, labeling_config, read_tasks, to_tasks
from fgrl.types import Annotation, PairVerdict, Response, Sample


def json_round(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return json.loads(json.dumps(tasks))


def test_spans_reasons_notes_answers_preferences_and_times_come_back() -> None:
    given = [annotated("1"), annotated("2", verdicts=[PairVerdict(first=0, second=1, verdict="first", by="Ada")])]
    tasks, left_out = to_tasks(given)
    back, skipped = from_tasks(json_round(tasks))
    assert back == given
    assert (left_out, skipped) == (0, 0)


def test_offsets_are_code_points() -> None:
    """`sitzt` begins behind one emoji, which JavaScript counts as two."""
    (task,), _ = to_tasks([annotated()])
    marked = [one["value"] for one in task["annotations"][0]["result"] if one["type"] == "labels"]
    assert (marked[0]["start"], marked[0]["end"]) == (A.index("sitzt"), A.index(" Dach"))


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\t \\"), min_size=1, max_size=12)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 11), st.integers(1, 12)), min_size=1, max_size=4))
def test_any_span_comes_back_at_its_place(cases: list[tuple[str, int, int]]) -> None:
    spans = [
        (text, min(start, len(text) - 1), min(len(text), max(end, min(start, len(text) - 1) + 1)))
        for text, start, end in cases
    ]
    samples = [
        Sample(
            id=str(number),
            prompt="p",
            responses=[
                Response(
                    text=text,
                    annotations=[Annotation(by="a", spans=[span(text, text[start:end], -1.0, id="s")])],
                )
            ],
        )
        for number, (text, start, end) in enumerate(spans)
    ]
    back, skipped = from_tasks(json_round(to_tasks(samples)[0]))
    assert [one.responses for one in back] == [one.responses for one in samples]
    assert skipped == 0


def test_spans_answers_critiques_and_verdicts_that_label_studio_has_no_place_for_are_counted() -> None:
    strange = Annotation(
        by="Ada",
        critique="Long.",
        answers={"level": 2.5, "stars": 4},
        spans=[
            span(A, "auf", 0.5, id="x"),
            span(A, "auf", -1.0, id="y"),
            span(A, "auf", -1.0, id="z").model_copy(update={"end": A.index("auf")}),
        ],
    )
    verdicts = [
        PairVerdict(first=0, second=1, verdict=None, by="Ada"),
        PairVerdict(first=0, second=1, verdict="tie", by="Bo"),
        PairVerdict(first=0, second=1, verdict="first", by="Bo"),
    ]
    responses = [Response(text=A, annotations=[strange]), Response(text=B)]
    (task,), left_out = to_tasks([annotated().model_copy(update={"responses": responses, "verdicts": verdicts})])
    assert left_out == len(["level", "x", "z", "critique", "missing", "second verdict"])
    ada, bo = ({one["from_name"] for one in own["result"]} for own in task["annotations"])
    assert ada == {"span_1", "question_1_stars", "annotator"}
    assert bo == {"tie", "annotator"}


def exported_task(**changes: Any) -> dict[str, Any]:
    """As Label Studio's JSON export writes it: users as objects or numbers, an id and `origin` with each result, quotes in which
    line ends are a backslash and an n, `to_name` of a Pairwise is the tag itself."""
    text = "One 😺 cat\nsleeps."
    result = [
        {
            "id": "kQ1", "from_name": "span_1", "to_name": "response_1", "type": "labels", "origin": "manual",
            "value": {"start": 6, "end": 16, "text": "cat\\nsleeps", "labels": ["Dislike"]},
        },
        {
            "id": "kQ1", "from_name": "dislike_1", "to_name": "response_1", "type": "choices", "origin": "manual",
            "value": {"start": 6, "end": 16, "text": "cat\\nsleeps", "choices": ["too_wordy", "other"]},
        },
        {
            "id": "kQ1", "from_name": "note_1", "to_name": "response_1", "type": "textarea", "origin": "manual",
            "value": {"start": 6, "end": 16, "text": ["who?"]},
        },
        {
            "id": "c1", "from_name": "question_2_stars", "to_name": "response_2", "type": "rating", "origin": "manual",
            "value": {"rating": 4},
        },
        {
            "id": "c2", "from_name": "preference", "to_name": "preference", "type": "pairwise", "origin": "manual",
            "value": {"selected": "right"},
        },
        {
            "id": "c3", "from_name": "preference_reason", "to_name": "response_1", "type": "textarea", "origin": "manual",
            "value": {"text": ["shorter", "and kinder"]},
        },
    ]  # fmt: skip
    annotation = {"id": 7, "completed_by": 1, "result": result, "was_cancelled": False, "lead_time": 33.25}
    data = {"query": "Where?", "response_1": text, "response_2": "There.", "domain": "News", "id": "q7"}
    return {"id": 3, "data": data, "annotations": [annotation | changes], "predictions": [], "project": 1}


def test_an_export_of_label_studio_without_our_sample() -> None:
    (sample,), skipped = from_tasks([exported_task()])
    assert skipped == 0
    assert (sample.id, sample.prompt, sample.meta["domain"]) == ("q7", "Where?", "News")
    (first,) = sample.responses[0].annotations
    (marked,) = first.spans
    assert sample.responses[0].text[marked.start : marked.end] == "cat\nsleeps"
    assert (marked.label, marked.reasons, marked.note, marked.id) == (-1.0, ["too_wordy", "other"], "who?", "kQ1")
    assert sample.responses[1].annotations[0].answers == {"stars": 4}
    assert sample.verdicts == [PairVerdict(first=0, second=1, verdict="second", reason="shorter\nand kinder", by="1")]
    assert sample.meta["annotation"] == {"by": {"1": {"seconds": 33.25, "done": True}}}


@pytest.mark.parametrize(
    ("completed_by", "name"), [({"id": 4, "email": "ada@x.org"}, "ada@x.org"), (9, "9"), (None, ""), ({"id": 4}, "4")]
)
def test_who_annotated(completed_by: Any, name: str) -> None:
    (sample,), _ = from_tasks([exported_task(completed_by=completed_by)])
    assert sample.responses[0].annotations[0].by == name


def one_region(**value: Any) -> tuple[list[tuple[int, int]], int]:
    """Spans of a task with one region, and what was skipped."""
    result = {"id": "r", "from_name": "span_1", "to_name": "response_1", "type": "labels", "value": value}
    (sample,), skipped = from_tasks([exported_task(result=[result])])
    return [(each.start, each.end) for each in sample.responses[0].spans], skipped


def test_a_region_has_one_label_or_is_skipped() -> None:
    assert one_region(start=6, end=9, text="cat", labels=["like"]) == ([(6, 9)], 0)
    assert one_region(start=6, end=9, text="cat", labels=["like", "dislike"]) == ([], 1)
    assert one_region(start=6, end=9, text="cat", labels=["PER"]) == ([], 1)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"start": 7, "end": 17, "text": "cat\\nsleeps"}, "region r: the text from character 7 to 17 is 'at\\nsleeps.', and not"),
        ({"start": 9, "end": 12, "text": "cat"}, "region r: the text from character 9 to 12 is '\\nsl', and not 'cat'"),
        ({"end": 12, "text": "cat"}, "not as Label Studio writes it: there is no 'start'"),
        ({"start": 0, "end": 99}, "task 3: responses.0: a span ends at 99"),
    ],
)  # fmt: skip
def test_a_region_at_another_place_stops_the_import(value: dict[str, Any], wanted: str) -> None:
    """A place in 16-bit units, as Label Studio counted before 2022; another one; none; one outside the text."""
    with pytest.raises(DataError) as error:
        one_region(labels=["like"], **value)
    assert "task 3" in str(error.value)
    assert wanted in str(error.value)


def test_what_is_not_ours_is_skipped_and_counted() -> None:
    results = [
        {"id": "a", "from_name": "x", "to_name": "response_1", "type": "brush", "value": {"rle": []}},
        {"id": "b", "from_name": "x", "to_name": "image", "type": "choices", "value": {"choices": ["cat"]}},
        {"id": "c", "from_name": "span_1", "to_name": "response_1", "type": "labels", "value": {"start": 0, "end": 3, "labels": ["PER"]}},
        {"id": "d", "from_name": "like_1", "to_name": "response_1", "type": "choices", "value": {"start": 0, "end": 3, "choices": ["x"]}},
        {"id": "e", "type": "relation", "direction": "right"},
        {"id": "f", "from_name": "preference_reason", "to_name": "response_1", "type": "textarea", "value": {"text": "why"}},
    ]  # fmt: skip
    task = exported_task(result=results)
    task["annotations"].append({"was_cancelled": True, "result": results})
    task["predictions"] = [{"result": []}]
    (sample,), skipped = from_tasks([task])
    assert sample.responses[0].spans == []
    assert skipped == len(results) + len(["cancelled", "prediction"])


@pytest.mark.parametrize(
    ("content", "wanted"),
    [("{", "not valid JSON"), ('{"id": 1}', "wants a list of tasks"), ('[{"id": 5}]', "task 5: not as Label Studio writes it: there is no 'data'"),
     ('[{"id": 5, "data": {"text": "x"}}]', "task 5: data wants `query` and `response_1`"),
     ('[{"id": 5, "data": {"sample": {"id": 1}}}]', "task 5: id: Input should be a valid string")],
)  # fmt: skip
def test_files_that_are_no_tasks(tmp_path: Path, content: str, wanted: str) -> None:
    (tmp_path / "tasks.json").write_text(content)
    with pytest.raises(DataError) as error:
        from_tasks(read_tasks(tmp_path / "tasks.json"))
    assert wanted in str(error.value)


def test_the_query_is_shown_where_the_prompt_holds_more() -> None:
    sample = annotated(meta=annotated().meta | {"ask": "Wo?", "source": "Quelle", "question": "?"})
    (task,), _ = to_tasks([sample], document="source", query="ask")
    assert (task["data"]["query"], task["data"]["document"]) == ("Wo?", "Quelle")
    assert to_tasks([sample])[0][0]["data"]["query"] == "?"
    assert to_tasks([sample], query="none")[0][0]["data"]["query"] == sample.prompt
    assert from_tasks([task])[0] == [sample]


def test_times_are_lead_times() -> None:
    (task,), _ = to_tasks([annotated()])
    assert [annotation["lead_time"] for annotation in task["annotations"]] == [41.5, 12.0]


def controls(config: str) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(config)
    return {element.get("name", ""): element for element in root.iter() if element.get("name")}


@pytest.mark.parametrize("settings", [None, load_settings("retrieval")])
def test_every_result_has_its_control_and_every_choice_its_alias(settings: Any) -> None:
    samples = [annotated()]
    known = controls(labeling_config(samples, settings))
    (task,), _ = to_tasks(samples)
    types = {
        "labels": "Labels",
        "choices": "Choices",
        "textarea": "TextArea",
        "pairwise": "Pairwise",
        "rating": "Rating",
    }
    for annotation in task["annotations"]:
        for result in annotation["result"]:
            control = known[result["from_name"]]
            assert control.tag == types[result["type"]]
            assert result["to_name"] in (*control.get("toName", "").split(","), result["from_name"])
            if result["type"] == "choices":
                assert {choice.get("alias") for choice in control} >= set(result["value"]["choices"])
            if result["type"] == "labels":
                assert {label.get("value") for label in control} >= set(result["value"]["labels"])
    for control in known.values():
        for name in filter(None, control.get("toName", "").split(",")):
            assert known[name].tag == "Text"
    values = {control.get("value", "").removeprefix("$") for control in known.values() if control.tag == "Text"}
    assert values <= set(task["data"])


def test_the_configuration_follows_the_modes_of_the_page() -> None:
    only = controls(labeling_config([], load_settings("retrieval_ab")))
    assert {"preference", "tie", "preference_reason"} <= set(only)
    assert not [name for name in only if name.startswith(("span", "like", "note", "question"))]
    single = controls(
        labeling_config([Sample(id="1", prompt="p", responses=[Response(text="a")])], load_settings("retrieval_single"))
    )
    assert "preference" not in single
    assert len(list(single["dislike_1"])) == 20
    assert single["dislike_1"].get("whenLabelValue") == "dislike"
