"""A store as a file and as a store again: the same bytes, and what other readers get of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotated_samples import A, B, annotated, span

from fgrl.base.errors import DataError
from fgrl.components.annotators.human import HumanAnnotations
from fgrl.components.readers.jsonl import JsonLines
from fgrl.feedback.page_settings import PageSettings, load_settings
from fgrl.pages.annotation.export import exported
from fgrl.pages.annotation.importing import import_into, without_annotations
from fgrl.pages.annotation.label_studio import from_tasks, to_tasks
from fgrl.pages.annotation.store import Store
from fgrl.types import Annotation, PairVerdict, Response, Sample, read_jsonl, write_jsonl

BY_MODEL = Annotation(by="critic", spans=[span(A, "Katze", -1.0)], critique="Kurz.")
SAMPLES = [
    Sample(
        id="1",
        prompt="Wo ist die Katze?",
        responses=[Response(text=A, by="m", annotations=[BY_MODEL]), Response(text=B, by="m", score=0.5)],
        verdicts=[PairVerdict(first=0, second=1, verdict="first", by="judge", p=0.75)],
        meta={"document": "Ein Text.", "domain": "Yelp", "annotation": {"by": {"old": {"done": True}}}},
    ),
    Sample(id="z/2 ü", prompt="?", responses=[Response(text="x y"), Response(text="😺")], meta={"domain": "News"}),
    Sample(id="3", prompt="?", responses=[Response(text="c"), Response(text="d")]),
]


def marked(text: str, quote: str, place: int, **changes: Any) -> dict[str, Any]:
    start = text.index(quote)
    known = {"place": place, "start": start, "end": start + len(quote), "quote": quote, "label": -1}
    return known | {"reasons": [], "note": "", "deleted": False} | changes


class Clock:
    """A second later each time."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.125

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two annotators who change their minds, delete, restore, reopen; an item that was only opened, one that nobody saw."""
    settings = load_settings("retrieval").model_copy(update={"title": "Katzen", "domain": "domain"})
    with Store.create(
        tmp_path / "page.sqlite", SAMPLES, settings, ["Zoë", "ada", "idle"], 1, each=2, seed=3, clock=Clock()
    ) as own:
        own.append("1", "Zoë", "order", "", {"order": [1, 0]}, 0)
        own.append("1", "ada", "order", "", {"order": [0, 1]}, 0)
        first = marked(B, "👩‍👩‍👧 answer", 1, reasons=["generic", "other"], note='"so" <b>\nja 🎉')
        own.append("1", "Zoë", "span", "s-1", first, 0)
        own.append("1", "ada", "span", "s-1", marked(A, "auf", 0, reasons=["too_wordy"]), 0)
        own.append("1", "Zoë", "span", "s-1", marked(A, "é́ Dach.\nSie", 0, label=1, reasons=["engaging"]), 1)
        own.append("1", "Zoë", "span", "s-1", first | {"deleted": True}, 2)
        own.append("1", "Zoë", "span", "s-1", first, 3)
        own.append("1", "Zoë", "span", "gone", marked(A, "Katze", 0, note="weg", deleted=True), 0)
        own.append("1", "Zoë", "answers", "1", {"liked": ["clear"], "comment": "ok"}, 0)
        own.append("1", "Zoë", "answers", "1", {"liked": ["clear", "faithful"]}, 1)
        own.append("1", "Zoë", "verdict", "", {"better": None, "reason": "gleich"}, 0)
        own.append("1", "Zoë", "verdict", "", {"better": None, "reason": "gleich", "deleted": True}, 1)
        own.append("1", "Zoë", "verdict", "", {"better": 1, "reason": "länger"}, 2)
        own.append("1", "ada", "verdict", "", {"better": 0, "reason": "?"}, 0)
        own.append("1", "ada", "verdict", "", {"better": 0, "reason": "?", "deleted": True}, 1)
        own.append("1", "Zoë", "time", "t.1", {"seconds": 10.25}, 0)
        own.append("1", "Zoë", "time", "t.2", {"seconds": 2.5}, 0)
        own.append("1", "Zoë", "done", "", {"done": True}, 0)
        own.append("1", "Zoë", "done", "", {"done": False}, 1)
        own.append("1", "Zoë", "done", "", {"done": True}, 2)
        own.append("z/2 ü", "ada", "order", "", {"order": [0, 1]}, 0)
        own.append("z/2 ü", "ada", "span", "s", marked("😺", "😺", 1, label=1, reasons=["other"], note="Katze"), 0)
        own.append("z/2 ü", "Zoë", "order", "", {"order": [1, 0]}, 0)
        own.append("1", "Zoë", "suggestion", "0.0.0", {"accepted": True, "span": "gone"}, 0)
        own.append("1", "ada", "span", "taken", marked(A, "Katze", 0, reasons=["generic"]), 0)
        own.append("1", "ada", "suggestion", "0.0.0", {"accepted": False, "span": None}, 0)
        own.append("1", "ada", "suggestion", "0.0.0", {"accepted": True, "span": "taken"}, 1)
        own.append("z/2 ü", "Zoë", "cannot_judge", "", {"cannot": True, "comment": "kein Text"}, 0)
        own.append("z/2 ü", "Zoë", "done", "", {"done": True}, 0)
        yield own


def to_file(path: Path, samples: Any) -> bytes:
    write_jsonl(path, samples)
    return path.read_bytes()


def created(tmp_path: Path, samples: list[Sample], settings: PageSettings | None = None, name: str = "new") -> Store:
    """A new store for annotated samples."""
    bare = [without_annotations(sample) for sample in samples]
    return Store.create(tmp_path / f"{name}.sqlite", bare, settings or load_settings("retrieval"))


def again(tmp_path: Path, samples: list[Sample], settings: PageSettings | None = None, name: str = "new") -> Store:
    """A new store with everything that the samples contain."""
    own = created(tmp_path, samples, settings, name)
    import_into(own, samples)
    return own


def test_export_import_export_gives_the_same_bytes(store: Store, tmp_path: Path) -> None:
    first = to_file(tmp_path / "one.jsonl", exported(store))
    samples = list(read_jsonl(tmp_path / "one.jsonl", Sample))
    with again(tmp_path, samples, store.settings) as own:
        assert to_file(tmp_path / "two.jsonl", exported(own)) == first
        result = import_into(own, samples)
        assert (result.added, result.revisions > 0, result.skipped) == (0, True, 0)
        assert to_file(tmp_path / "three.jsonl", exported(own)) == first


def test_an_exported_sample(store: Store) -> None:
    sample, other, unseen = exported(store)
    critic, zoe, ada = (
        sample.responses[0].annotations[0],
        sample.responses[1].annotations[0],
        sample.responses[0].annotations[2],
    )
    assert critic == BY_MODEL
    (each,) = zoe.spans
    assert (zoe.by, each.id, each.label, each.reasons, each.note) == (
        "Zoë",
        "s-1",
        -1.0,
        ["generic", "other"],
        '"so" <b>\nja 🎉',
    )
    assert B[each.start : each.end] == "👩‍👩‍👧 answer"
    assert zoe.answers == {"liked": ["clear", "faithful"]}
    assert sample.responses[0].annotations[1] == Annotation(by="Zoë"), "finished, and nothing marked on this response"
    assert (ada.by, [one.note for one in ada.spans]) == ("ada", [None, None])
    assert [one.by for one in sample.responses[1].annotations] == ["Zoë"], "ada has not finished"
    assert sample.verdicts == [
        PairVerdict(first=0, second=1, verdict="first", by="judge", p=0.75),
        PairVerdict(first=0, second=1, verdict="second", reason="länger", by="Zoë"),
    ]
    about = sample.meta["annotation"]
    assert about["before"] == {"by": {"old": {"done": True}}}
    assert about["page"]["spans"] == "both"
    start = A.index("Katze")
    suggestion = {"id": "0.0.0", "by": "critic", "place": 0, "start": start, "end": start + 5, "label": -1}
    assert about["by"]["Zoë"] == {
        "order": [1, 0], "seconds": 12.75, "done": True, "at": about["by"]["Zoë"]["at"],
        "suggestions": [{**suggestion, "accepted": False}],
    }, "the mark that came of the suggestion was deleted"  # fmt: skip
    assert about["by"]["ada"] == {
        "order": [0, 1], "done": False, "at": about["by"]["ada"]["at"],
        "suggestions": [{**suggestion, "accepted": True, "span": "taken"}],
    }  # fmt: skip
    assert [(one.by, len(one.spans)) for response in other.responses for one in response.annotations] == [("ada", 1)]
    assert other.meta["annotation"]["by"].keys() == {"ada", "Zoë"}
    assert other.meta["annotation"]["by"]["Zoë"]["cannot_judge"] == "kein Text"
    assert unseen == SAMPLES[2]


def test_only_what_is_finished(store: Store) -> None:
    sample, other, _unseen = exported(store, finished=True)
    assert {one.by for response in sample.responses for one in response.annotations} == {"critic", "Zoë"}
    assert other.responses == SAMPLES[1].responses, "who cannot judge an item says nothing about its responses"
    assert other.meta["annotation"]["by"].keys() == {"Zoë"}


def test_without_annotations_is_what_the_store_was_made_of(store: Store) -> None:
    assert [without_annotations(sample) for sample in exported(store)] == SAMPLES


def test_readers_and_the_annotator_human_take_an_export(store: Store, tmp_path: Path) -> None:
    to_file(tmp_path / "annotated.jsonl", exported(store))
    assert list(JsonLines(path=str(tmp_path / "annotated.jsonl")).read()) == list(exported(store))
    bare = [
        sample.model_copy(
            update={
                "responses": [one.model_copy(update={"annotations": []}) for one in sample.responses],
                "verdicts": None,
                "meta": {},
            }
        )
        for sample in SAMPLES
    ]
    after = HumanAnnotations(path=str(tmp_path / "annotated.jsonl"), verdicts=True).annotate(bare)
    assert [(one.responses, one.verdicts) for one in after] == [
        (one.responses, one.verdicts) for one in exported(store)
    ]


def test_label_studio_there_and_back_and_into_a_store(store: Store, tmp_path: Path) -> None:
    """Spans, labels, reasons, notes, answers and preferences are those of the first store."""
    before = list(exported(store))
    tasks, left_out = to_tasks(before)
    assert left_out == len(["the critique by a model"])
    samples, skipped = from_tasks(json.loads(json.dumps(tasks)))
    assert skipped == 0
    with again(tmp_path, samples, store.settings) as own:
        for one, other in zip(before, exported(own), strict=True):
            assert [v for v in one.verdicts or [] if v.by != "judge"] == [
                v for v in other.verdicts or [] if v.by != "judge"
            ]
            for mine, theirs in zip(one.responses, other.responses, strict=True):
                kept = {
                    a.by: (a.spans, a.answers) for a in mine.annotations if a.by != "critic" and (a.spans or a.answers)
                }
                assert {
                    a.by: (a.spans, a.answers)
                    for a in theirs.annotations
                    if a.by != "critic" and (a.spans or a.answers)
                } == kept


def test_annotations_of_other_origin_become_first_revisions(tmp_path: Path) -> None:
    samples = [annotated("1"), annotated("2", meta={})]
    with again(tmp_path, samples) as own:
        assert own.annotators == ["Ada", "bob@example.org"]
        assert [own.state("2", name).done for name in own.annotators] == [True, False], (
            "bob has not reached the second one"
        )
        back = list(exported(own))
    for sample, after in zip(samples, back, strict=True):
        assert [one.annotations[:1] for one in after.responses] == [one.annotations[:1] for one in sample.responses]
        assert after.verdicts == sample.verdicts
    assert back[0].meta["annotation"]["by"]["Ada"]["seconds"] == 41.5


def test_what_a_store_has_no_place_for_is_counted(tmp_path: Path) -> None:
    spans = [
        span(A, "auf", -1.0, id="same", weight=2.0),
        span(A, "dem", 0.5, id="half"),
        span(A, "auf", -1.0, id="no id", answered_by=1),
        span(A, "auf", -1.0).model_copy(update={"end": A.index("auf")}),
    ]
    first = Response(text=A, annotations=[Annotation(by="a", spans=spans, critique="Kurz.")])
    second = Response(text=B, annotations=[Annotation(by="a", spans=[span(B, "more", -1.0, id="same")])])
    verdicts = [
        PairVerdict(first=1, second=0, verdict="first", by="a", agree=True),
        PairVerdict(first=0, second=1, verdict=None, by="a"),
        PairVerdict(first=0, second=1, verdict="tie", by="a"),
    ]
    sample = Sample(id="1", prompt="p", responses=[first, second], verdicts=verdicts)
    with created(tmp_path, [sample]) as own:
        assert import_into(own, [sample]).skipped == len(["half", "empty", "critique", "missing", "second verdict"])
        (after,) = exported(own)
    assert [one.verdict for one in after.verdicts or []] == ["second"]
    assert [len(one.spans) for one in after.responses] == [1, 1], "the same mark twice is one mark"


def test_a_page_with_one_response_has_its_time_in_the_annotation(tmp_path: Path) -> None:
    sample = Sample(id="1", prompt="p", responses=[Response(text=A), Response(text=B)], chosen=1)
    with Store.create(tmp_path / "s.sqlite", [sample], load_settings("retrieval_single"), ["a"]) as own:
        own.append("1", "a", "time", "t", {"seconds": 8.5}, 0)
        own.append("1", "a", "done", "", {"done": True}, 0)
        (after,) = exported(own)
        assert [one.annotations for one in after.responses] == [[], [Annotation(by="a", seconds=8.5)]]
        first = to_file(tmp_path / "one.jsonl", [after])
    with again(tmp_path, [after], load_settings("retrieval_single")) as own:
        assert to_file(tmp_path / "two.jsonl", exported(own)) == first


def test_a_page_that_marks_nothing_exports_no_empty_annotations(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s.sqlite", SAMPLES[2:], load_settings("retrieval_ab"), ["a"]) as own:
        own.append("3", "a", "verdict", "", {"better": 0, "reason": ""}, 0)
        own.append("3", "a", "done", "", {"done": True}, 0)
        (after,) = exported(own)
    assert [one.annotations for one in after.responses] == [[], []]
    assert after.verdicts == [PairVerdict(first=0, second=1, verdict="first", by="a")]


def test_annotations_that_do_not_fit_the_page_or_the_store_are_refused(store: Store, tmp_path: Path) -> None:
    wrong = annotated("3", responses=[Response(text="c", annotations=[Annotation(by="a", spans=[span("c", "c", -1.0, reasons=["too_wordi"])])]), Response(text="d")], meta={}, verdicts=None)  # fmt: skip
    with pytest.raises(DataError) as error:
        import_into(store, [wrong])
    assert "sample 3: span" in str(error.value)
    assert 'did you mean "too_wordy"?' in str(error.value)
    with pytest.raises(DataError, match="with other responses"):
        import_into(store, [annotated("3")])
    with pytest.raises(DataError, match="no item '9'"):
        import_into(store, [annotated("9")])


def test_annotations_without_revisions_are_added_to_what_a_store_has(store: Store, tmp_path: Path) -> None:
    """The store's own file adds nothing; somebody else's work on the same samples is added; other work of the same person is refused."""
    samples = list(exported(store))
    revisions = list(store.revisions())
    assert import_into(store, samples).added == 0
    assert list(store.revisions()) == revisions
    new = Annotation(by="Eve", spans=[span("c", "c", -1.0, id="e", reasons=["generic"])])
    more = SAMPLES[2].model_copy(update={"responses": [Response(text="c", annotations=[new]), Response(text="d")]})
    assert import_into(store, [more]).added == 1
    assert not store.state("3", "Eve").done
    about = samples[0].meta["annotation"]
    longer = about | {"by": about["by"] | {"Zoë": about["by"]["Zoë"] | {"seconds": 99.0, "order": [0, 1]}}}
    result = import_into(store, [samples[0].model_copy(update={"meta": samples[0].meta | {"annotation": longer}})])
    assert result.added == 0, "the store keeps its own orders and times"
    other = PairVerdict(first=0, second=1, verdict="first", reason="r", by="Zoë")
    with pytest.raises(DataError, match="the store has another version of it"):
        import_into(store, [samples[0].model_copy(update={"verdicts": [other]})])
