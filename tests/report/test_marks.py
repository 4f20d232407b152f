"""Marked passages on answers: the right characters in the right kind of mark, whoever made them, and nothing of the data runs."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fake_runs import fake_run, write_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import HOSTILE, assert_safe, change, page, stage

from fgrl.pages.report.drawing import LANES, MOST_MARKS, ShownAnnotation, draw, lanes, listed, pieces
from fgrl.pages.report.escaping import MOST_CHARACTERS
from fgrl.pages.report.marked_tokens import MarkedTokens, kind_of, nested
from fgrl.types import Annotation, Span


def span(start: int, end: int, label: float = 1.0, *reasons: str, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "label": label, "reasons": list(reasons), **more}


def records(*spans: dict[str, Any]) -> list[Span]:
    return [Span.model_validate(one) for one in spans]


def marked(text: str, *recorded: Annotation | None) -> MarkedTokens:
    return MarkedTokens("", [], [], text=text, annotations=[("critic", one) for one in recorded])


def annotation(text: str, *spans: dict[str, Any]) -> ShownAnnotation:
    (shown,), _spans = listed(marked(text, Annotation(spans=records(*spans))))
    return shown


def drawn(text: str, *spans: Any) -> list[tuple[str, list[str], list[int]]]:
    """(text, marks, numbers behind it) of each piece."""
    item = marked(text, Annotation(spans=records(*spans)))
    every = listed(item)[1]
    order = nested(every)
    lane = dict(zip(order, lanes([every[i] for i in order]), strict=True))
    return [
        (piece.text, [f"{kind_of(every[i])} lane-{lane[i]}" for i in piece.marks], [i + 1 for i in piece.ends])
        for piece in pieces(item, every)
    ]


def plain(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", "", page))


def test_passages_differ_in_their_line_and_lead_to_their_reasons() -> None:
    text = "good, bad, so so."
    assert drawn(text, span(6, 9, -1), span(0, 4), span(11, 16, 0)) == [
        ("good", ["good lane-0"], [1]), (", ", [], []), ("bad", ["poor lane-0"], [2]), (", ", [], []),
        ("so so", ["neutral lane-0"], [3]), (".", [], []),
    ]  # fmt: skip
    (passage,) = annotation(text, span(0, 4, 0.5, "short", note="and kind", weight=2.0, answered_by=1)).passages
    assert (passage.number, passage.kind, passage.words, passage.quote) == (1, "good", "good (+0.50)", "good")
    assert passage.reasons == ["short", "and kind", "weight 2", "addressed by response 2"]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([span(0, 6), span(2, 4, -1)], [  # one inside the other
            ("ab", ["good lane-0"], []), ("cd", ["good lane-0", "poor lane-1"], [2]), ("ef", ["good lane-0"], [1])]),
        ([span(0, 4), span(2, 6, -1)], [  # they cross
            ("ab", ["good lane-0"], []), ("cd", ["good lane-0", "poor lane-1"], [1]), ("ef", ["poor lane-1"], [2])]),
        ([span(1, 3), span(1, 3, -1)], [  # the same passage twice
            ("a", [], []), ("bc", ["good lane-0", "poor lane-1"], [1, 2]), ("def", [], [])]),
        ([span(0, 3), span(3, 6)], [("abc", ["good lane-0"], [1]), ("def", ["good lane-0"], [2])]),  # neighbours
        ([span(3, 3)], [("abc", [], []), ("", ["good lane-0"], [1]), ("def", [], [])]),  # nothing is marked, but where
        ([span(6, 6)], [("abcdef", [], []), ("", ["good lane-0"], [1])]),
    ],
)  # fmt: skip
def test_overlapping_passages_have_a_line_each(spans: list[Any], expected: list[Any]) -> None:
    assert drawn("abcdef", *spans) == expected


def test_lines_numbers_and_words_are_in_the_markup() -> None:
    item = marked("abcdef", Annotation(spans=records(span(0, 4), span(2, 6, -0.5))))
    assert draw(item, spans=listed(item)[1]) == (
        '<span class="mark good lane-0" title="1 good">ab</span>'
        '<span class="mark good lane-0"><span class="mark poor lane-1" title="1 good · 2 poor (−0.50)">cd</span></span>'
        '<sup class="number good">1</sup>'
        '<span class="mark poor lane-1" title="2 poor (−0.50)">ef</span><sup class="number poor">2</sup>'
    )


def test_passages_of_several_people_are_on_one_text_with_one_row_of_numbers() -> None:
    item = marked(
        "abcd",
        Annotation(by="ada", spans=records(span(2, 4, -1))),
        None,
        Annotation(by="bo", spans=records(span(0, 3))),
    )
    shown, spans = listed(item)
    assert [(one.by, [passage.number for passage in one.passages]) for one in shown] == [
        ("critic · ada", [1]), ("critic", []), ("critic · bo", [2]),
    ]  # fmt: skip
    assert [(piece.text, piece.marks, piece.ends) for piece in pieces(item, spans)] == [
        ("ab", [1], []), ("c", [1, 0], [1]), ("d", [0], [0]),
    ]  # fmt: skip


def test_a_passage_that_ends_inside_of_a_token_divides_it() -> None:
    item = MarkedTokens(
        "", ["good", " bad"], ["response"] * 2, values=[1.0, -1.0], text="good bad", offsets=[(0, 4), (4, 8)]
    )  # fmt: skip
    found = pieces(item, records(span(0, 6)))
    assert [(piece.text, piece.places, piece.marks, piece.ends) for piece in found] == [
        ("good", [0], [0], []), (" b", [1], [0], [0]), ("ad", [1], [], []),
    ]  # fmt: skip
    assert draw(item, spans=records(span(0, 6))).count('title="token 2 of 2 · reward −1') == 2


def test_without_the_places_of_the_tokens_passages_are_listed_and_it_is_said() -> None:
    item = MarkedTokens(
        "", ["a?", "b?"], ["response"] * 2, text="ab", annotations=[("r", Annotation(spans=records(span(0, 1))))]
    )
    (shown,), spans = listed(item)
    assert [passage.quote for passage in shown.passages] == ["a"]
    assert shown.notes == ["Which tokens they are is not known."]
    assert "mark" not in draw(item, spans=spans)


def test_more_lines_than_there_is_room_for() -> None:
    assert lanes([Span(start=0, end=9)] * 5) == [0, 1, 2, LANES - 1, LANES - 1]


@settings(max_examples=200, deadline=None)
@given(st.text("ab<&\n\u202e🐕", max_size=12), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6))
def test_every_character_is_drawn_once_under_the_passages_that_cover_it(text: str, ends: list[tuple[int, int]]) -> None:
    spans = sorted({(min(a, b, len(text)), min(max(a, b), len(text))) for a, b in ends}, key=lambda at: (at[0], -at[1]))
    every, place = [Span(start=start, end=end) for start, end in spans], 0
    found = pieces(marked(text), every)
    for piece in found:
        after = place + len(piece.text)
        assert text[place:after] == piece.text
        if piece.text:
            assert piece.marks == [i for i, (start, end) in enumerate(spans) if start <= place < after <= end]
        else:
            assert [spans[i] for i in piece.marks] == [(place, place)]
        place = after
    assert place == len(text)
    assert sorted(i for piece in found for i in piece.ends) == list(range(len(spans)))
    drawn_text = html.unescape(re.sub(r"<sup.*?</sup>|<[^>]*>", "", draw(marked(text), spans=every)))
    assert drawn_text.replace("↵\n", "\n").replace("⟨U+202E⟩", "\u202e") == (text or "(nothing)" * (not spans))


def test_what_is_not_drawn_is_said() -> None:
    shown = annotation("abc", span(0, 1), span(2, 9), span(4, 5))
    assert len(shown.passages) == 1
    assert shown.notes == ["2 marked passages do not fit the text."]
    assert annotation("abc").notes == ["No passage is marked."]
    long = "x" * (MOST_CHARACTERS + 7)
    many = [*(span(i, i + 1) for i in range(MOST_MARKS + 3)), span(MOST_CHARACTERS + 1, MOST_CHARACTERS + 2)]
    assert len(annotation(long, *many).passages) == MOST_MARKS
    assert annotation(long, *many).notes == ["4 more marked passages not drawn."]
    beyond = span(MOST_CHARACTERS - 1, MOST_CHARACTERS + 2), span(MOST_CHARACTERS + 1, MOST_CHARACTERS + 2)
    item = marked(long, Annotation(spans=records(*beyond)))
    (shown,), spans = listed(item)
    assert [passage.quote for passage in shown.passages] == ["xxx", "x"]
    assert re.findall(r'<sup class="number good">(\d)</sup>', draw(item, spans=spans)) == ["1"]
    assert draw(item, spans=spans).endswith('<span class="note"> … 7 characters more</span>')


def test_a_missing_critique_differs_from_one_without_passages() -> None:
    missing, empty, silent = listed(marked("abc", None, Annotation(critique="Fine."), Annotation()))[0]
    assert (missing.missing, missing.notes) == (True, [])
    assert (empty.missing, empty.critique) == (False, "Fine.")
    assert (silent.missing, silent.critique) == (False, None)
    for shown in (empty, silent):
        assert shown.notes == ["No passage is marked."]


def line(text: str = "a ride.", **more: Any) -> dict[str, Any]:
    return {"model": "sft", "sample": {"id": "1", "prompt": "p"}, "response": {"text": text, "finished": True}, **more}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_run(tmp_path, prompts=2, points=3, steps=3)


def test_evaluations_show_what_critics_and_people_recorded(run: Path) -> None:
    marked = line(
        annotations={"critic": {"critique": "Too <b>short</b>.", "spans": [span(2, 6, -1, "vague")]}, "other": None}
    )
    marked["response"]["annotations"] = [{"by": "ada", "spans": [span(0, 1)], "seconds": 41.5}, {"by": "bo"}]
    write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", [marked])
    text, parsed = page(run)
    assert_safe(text, parsed)
    found = re.findall(r'<div class="annotation">\n<h4>(.*?)</h4>', text)
    assert found == ["critic", "other", "ada"]
    assert text.count('<p class="text') == 1, "the answer is drawn once, whoever marked it"
    assert "Too &lt;b&gt;short&lt;/b&gt;." in text
    assert '<span class="mark poor lane-0" title="1 poor">ride</span><sup class="number poor">1</sup>' in text
    words = plain(text)
    assert "1poor ride — vague" in words
    assert "The critique is missing" in words
    assert "time42 s" in words


def test_annotated_samples_of_people_and_models(run: Path) -> None:
    policy = stage(run, "pairs")
    change(run / "summary.json", stages=_with_kind(run, "pairs", "annotate"))
    annotated = {"text": "Because it rains.", "by": "sft", "annotations": [
        {"by": "ada", "critique": "Right.", "spans": [span(8, 16, 1, "names it")], "answers": {"send it?": "yes"}}]}  # fmt: skip
    samples = [{"id": "0", "prompt": "nothing", "responses": [{"text": "no annotation"}]}]
    samples += [
        {"id": str(i), "prompt": f"Why {i}?", "responses": [{"text": "no"}, annotated], "chosen": 1} for i in range(20)
    ]
    write_lines(policy / "out" / "samples.jsonl", samples)
    text, parsed = page(run)
    assert_safe(text, parsed)
    section = re.search(r'<section class="annotated".*?</section>', text, re.DOTALL)
    assert section
    assert 'href="#annotations"' in text
    assert section[0].count('<article class="exchange">') == 8
    words = plain(section[0])
    assert "The first 8 samples" in words
    assert "response 2 of 2 · sft · chosen" in words
    assert "no annotation" not in words
    assert "send it?yes" in words
    assert '<span class="mark good lane-0" title="1 good">it rains</span>' in section[0]


def _with_kind(run: Path, name: str, kind: str) -> Any:
    stages = json.loads((run / "summary.json").read_text())["stages"]
    stages[name]["kind"] = kind
    return stages


def test_hostile_annotations_are_text(run: Path) -> None:
    change(run / "summary.json", stages=_with_kind(run, "pairs", "annotate"))
    rows = []
    for i, text in enumerate(HOSTILE):
        recorded = {"by": text, "critique": text, "answers": {text: text}, "spans": [
            span(0, len(text), -1, text, note=text), span(1, len(text) - 1, 1, text)]}  # fmt: skip
        answered = line(text, annotations={text: recorded}, tokens=[text], token_rewards={text: [1.0]})
        answered["sample"] = {"id": str(i), "prompt": text}
        rows.append(answered)
    write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", rows)
    stored = [{**row, "iteration": i, "advantages": [1.0]} for i, row in enumerate(rows)]
    write_lines(stage(run, "policy") / "out" / "rollouts.jsonl", stored)
    samples = [
        {"id": row["sample"]["id"], "prompt": row["sample"]["prompt"], "responses": [
            {**row["response"], "by": "x", "annotations": list(row["annotations"].values())}]} for row in rows
    ]  # fmt: skip
    write_lines(stage(run, "pairs") / "out" / "samples.jsonl", samples)
    text, parsed = page(run)
    assert_safe(text, parsed)
    assert "alert(1)" in "".join(parsed.text)
    for hidden in ("\u202e", "\x1b", "\x00", "\ufeff", "\ud800"):
        assert hidden not in text
    assert "⟨U+202E⟩" in text
