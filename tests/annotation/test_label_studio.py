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
from fgrl.pages.annotation.label_studio import (
    from_tasks,
    from_utf16,
    labeling_config,
    read_tasks,
    to_tasks,
    utf16_offset,
)
from fgrl.types import Annotation, PairVerdict, Response, Sample


def json_round(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return json.loads(json.dumps(tasks))


@pytest.mark.parametrize("offsets", ["code_points", "utf16"])
def test_spans_reasons_notes_answers_preferences_and_times_come_back(offsets: Any) -> None:
    given = [annotated("1"), annotated("2", verdicts=[PairVerdict(first=0, second=1, verdict="first", by="Ada")])]
    tasks, lost = to_tasks(given, offsets=offsets)
    back, not_understood = from_tasks(json_round(tasks))
    assert back == given
    assert (str(lost), str(not_understood)) == ("", "")


def test_offsets_are_counted_as_asked_and_both_ways_are_recognized() -> None:
    """`sitzt` begins behind one emoji, `answer` behind a family of three with two joiners."""
    (by_points,), _ = to_tasks([annotated()])
    (by_units,), _ = to_tasks([annotated()], offsets="utf16")

    def regions(task: dict[str, Any]) -> list[tuple[int, int]]:
        results = task["annotations"][0]["result"]
        return [(one["value"]["start"], one["value"]["end"]) for one in results if one["type"] == "labels"]

    assert regions(by_points)[0] == (A.index("sitzt"), A.index(" Dach"))
    assert regions(by_units)[0] == (A.index("sitzt") + 1, A.index(" Dach") + 1)
    assert regions(by_units)[-1][1] - regions(by_units)[-1][0] == len("👩‍👩‍👧 answer") + 3
    assert from_tasks([by_units], offsets="utf16")[0] == from_tasks([by_points], offsets="code_points")[0]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\t \\"), min_size=1, max_size=12)


@given(TEXTS, st.data())
def test_every_place_has_its_own_in_16_bit_units(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    assert from_utf16(text, utf16_offset(text, place)) == place
    assert utf16_offset(text, place) == len(text[:place].encode("utf-16-le")) // 2


def test_a_place_inside_a_character_or_outside_the_text_is_none() -> None:
    assert [from_utf16("a😺b", offset) for offset in range(6)] == [0, 1, -1, 2, 3, -1]


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
    for offsets in ("code_points", "utf16"):
        tasks, _ = to_tasks(samples, offsets=offsets)  # type: ignore[arg-type]
        back, lost = from_tasks(json_round(tasks), offsets=offsets)  # type: ignore[arg-type]
        assert [one.responses for one in back] == [one.responses for one in samples]
        assert str(lost) == ""


def test_what_label_studio_has_no_place_for_is_counted_in_one_line() -> None:
    sample = annotated()
    strange = Annotation(
        by="Ada",
        critique="Long.",
        answers={"level": 2.5, "stars": 4},
        spans=[
            span(A, "auf", 0.5, id="x"),
            span(A, "auf", -1.0, id="y", weight=2.0, answered_by=1),
            span(A, "auf", -1.0, id="z").model_copy(update={"end": A.index("auf")}),
        ],
    )
    nothing = Annotation(by="Cy")
    verdicts = [
        PairVerdict(first=0, second=1, verdict=None, by="Ada"),
        PairVerdict(first=0, second=1, verdict="tie", p=0.5, by="Bo"),
        PairVerdict(first=0, second=1, verdict="first", by="Bo"),
    ]
    people = {"Ada": {"order": [1, 0], "done": False, "at": "2026-01-01T00:00:00+00:00"}, "Dan": {"done": False}}
    meta = {"annotation": {"by": people, "revisions": [{}, {}]}}
    responses = [Response(text=A, annotations=[strange, nothing]), Response(text=B)]
    _, lost = to_tasks([sample.model_copy(update={"responses": responses, "verdicts": verdicts, "meta": meta})])
    assert dict(lost.counts) == {
        "critiques": 1,
        "answers that are no text, ticks or rating": 1,
        "spans with another label than +1 or -1": 1,
        "weights of spans": 1,
        "places of responses that address a span": 1,
        "empty spans": 1,
        "annotations that mark and answer nothing": 1,
        "missing verdicts": 1,
        "probabilities and agreements of comparisons": 1,
        "comparisons of other than the first two responses, or further ones": 1,
        "orders in which the responses were shown": 1,
        "marks that an item is not finished": 1,
        "times of the last change": 1,
        "annotators who opened an item without annotating it": 1,
        "revisions": 2,
    }
    assert "\n" not in str(lost)
    assert "1 critiques" in str(lost)


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
    (sample,), lost = from_tasks([exported_task()])
    assert str(lost) == ""
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


def one_region(**value: Any) -> tuple[list[tuple[int, int]], str]:
    """Spans and what was not kept of a task with one region."""
    result = {"id": "r", "from_name": "span_1", "to_name": "response_1", "type": "labels", "value": value}
    (sample,), lost = from_tasks([exported_task(result=[result])])
    return [(each.start, each.end) for each in sample.responses[0].spans], str(lost)


def test_old_exports_count_16_bit_units() -> None:
    assert one_region(start=7, end=17, text="cat\\nsleeps", labels=["like"]) == ([(6, 16)], "")


def regions(text: str, *spans: tuple[int, int, str]) -> dict[str, Any]:
    """A task with one text and these regions."""
    results = [
        {"id": f"r{start}", "from_name": "span_1", "to_name": "response_1", "type": "labels", "value": {"start": start, "end": end, "text": quote, "labels": ["like"]}}
        for start, end, quote in spans
    ]  # fmt: skip
    return {"data": {"query": "q", "response_1": text}, "annotations": [{"completed_by": 1, "result": results}]}


def test_a_region_that_fits_only_as_16_bit_units_decides_for_its_whole_task() -> None:
    """`a` at 3 is the second one in units and the third one in characters; `end` is at its place in units only."""
    text = "😺aaa end"
    alone, together = regions(text, (3, 4, "a")), regions(text, (3, 4, "a"), (6, 9, "end"))
    (one, both, again), lost = from_tasks([alone, together, alone])
    counted = "2 spans whose text is at two places, depending on how characters are counted (--offsets decides)"
    assert str(lost) == counted, "where nothing decides it is counted"
    assert [[(span.start, span.end) for span in own.responses[0].spans] for own in (one, both, again)] == [
        [(3, 4)], [(2, 3), (5, 8)], [(3, 4)]
    ]  # fmt: skip
    assert str(from_tasks([alone], offsets="utf16")[1]) == ""


def test_a_region_with_both_labels_is_two_spans_with_their_own_reasons_and_the_same_note() -> None:
    value = {"start": 0, "end": 3, "text": "One"}
    results = [
        {"id": "r", "from_name": "span_1", "to_name": "response_1", "type": "labels", "value": value | {"labels": ["like", "dislike"]}},
        {"id": "r", "from_name": "like_1", "to_name": "response_1", "type": "choices", "value": value | {"choices": ["useful_fact"]}},
        {"id": "r", "from_name": "dislike_1", "to_name": "response_1", "type": "choices", "value": value | {"choices": ["generic"]}},
        {"id": "r", "from_name": "note_1", "to_name": "response_1", "type": "textarea", "value": value | {"text": ["hm"]}},
    ]  # fmt: skip
    (sample,), lost = from_tasks([exported_task(result=results)])
    liked, disliked = sample.responses[0].spans
    assert (liked.label, liked.reasons, liked.note, liked.id) == (1.0, ["useful_fact"], "hm", "r-like")
    assert (disliked.label, disliked.reasons, disliked.note, disliked.id) == (-1.0, ["generic"], "hm", "r-dislike")
    assert str(lost) == ""
    again, kept = from_tasks(json_round(to_tasks([sample])[0]))
    assert (again, str(kept)) == ([sample], "")


@pytest.mark.parametrize(
    ("about", "wanted"),
    [
        ({"page": {"spans": "both"}}, "1 modes of the page"),
        ({"before": {"by": {"old": {}}}}, "1 earlier contents of meta.annotation"),
        ({"store": {"annotators": ["Ada"]}}, "1 settings of the page with its annotators"),
        ({"batch": 3, "place": "here"}, "2 other entries of meta.annotation"),
        ({"by": {"Ada": {"seconds": 1.0, "mood": "good"}}}, "1 other entries about an annotator"),
        ("by hand", "1 values of meta.annotation that are no mapping"),
        ({"by": {"Ada": {"seconds": 1.0, "done": True}}}, ""),
    ],
)
def test_what_meta_annotation_holds_and_label_studio_does_not_is_counted(about: Any, wanted: str) -> None:
    sample = annotated()
    tasks, lost = to_tasks([sample.model_copy(update={"meta": {"annotation": about}})])
    assert str(lost) == wanted
    assert "annotation" not in tasks[0]["data"]["sample"].get("meta", {})


def test_a_span_at_another_place_is_found_by_its_text_when_that_is_unique() -> None:
    moved = "1 offsets of spans, which were found by their text"
    assert one_region(start=9, end=12, text="cat", labels=["like"]) == ([(6, 9)], moved)
    lost = "1 spans whose text is not at their place"
    assert one_region(start=0, end=1, text="e", labels=["like"]) == ([], lost)
    assert one_region(start=0, end=99, labels=["like"]) == ([], lost)
    assert one_region(labels=["like"]) == ([], lost)


def test_without_a_quote_places_are_code_points() -> None:
    assert one_region(start="6", end="9", labels=["like"]) == ([(6, 9)], "")


def test_what_is_not_understood_is_counted() -> None:
    results = [
        {"id": "a", "from_name": "x", "to_name": "response_1", "type": "brush", "value": {"rle": []}},
        {"id": "b", "from_name": "x", "to_name": "image", "type": "choices", "value": {"choices": ["cat"]}},
        {"id": "c", "from_name": "span_1", "to_name": "response_1", "type": "labels", "value": {"start": 0, "end": 3, "labels": ["PER"]}},
        {"id": "d", "from_name": "like_1", "to_name": "response_1", "type": "choices", "value": {"start": 0, "end": 3, "choices": ["x"]}},
        {"id": "e", "type": "relation"},
        {"id": "f", "from_name": "preference_reason", "to_name": "response_1", "type": "textarea", "value": {"text": "why"}},
    ]  # fmt: skip
    task = exported_task(result=results)
    task["annotations"].append({"was_cancelled": True, "result": results})
    task["predictions"] = [{"result": []}]
    (sample,), lost = from_tasks([task])
    assert sample.responses[0].spans == []
    assert dict(lost.counts) == {
        "results of type brush": 1,
        "results about something other than a response": 1,
        "spans labelled 'PER'": 1,
        "reasons and notes without a span": 1,
        "results without a value": 1,
        "reasons of a preference without the preference": 1,
        "cancelled annotations": 1,
        "predictions": 1,
    }


@pytest.mark.parametrize(
    ("content", "wanted"),
    [("{", "not valid JSON"), ('{"id": 1}', "wants a list of tasks"), ('[{"id": 5}]', "task 5: it has no `data`"),
     ('[{"id": 5, "data": {"text": "x"}}]', "task 5: data wants `query` and `response_1`"),
     ('[{"id": 5, "data": {"sample": {"id": 1}}}]', "task 5: data.sample")],
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


def test_users_of_label_studio_become_completed_by() -> None:
    (task,), _ = to_tasks([annotated()], users={"Ada": 3})
    assert [annotation.get("completed_by") for annotation in task["annotations"]] == [3, None]
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
