"""Sets of spans: matching, labels of units, and spans at random places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.kinds import Reader
from fgrl.measuring import span_sets
from fgrl.measuring.span_sets import Labels, MarkedResponse, SpanSet
from fgrl.types import Annotation, Response, Sample, Span

TEXT = "The old lamp, lit at night, stands by the door."


class Listed(Reader):
    """Samples in memory."""

    samples: list[Any] = []
    """They."""

    def read(self) -> Any:
        return iter(self.samples)


def marked(*spans: Span, text: str = TEXT, id: str = "a") -> MarkedResponse:
    sample = Sample(id=id, prompt="q")
    return MarkedResponse(id, "q", sample, text, spans, (Annotation(spans=list(spans)),))


def sample(id: str, *responses: Response) -> Sample:
    return Sample(id=id, prompt=f"q {id}", responses=list(responses))


def test_a_response_without_an_annotation_is_missing_and_one_without_spans_is_neutral() -> None:
    silent = Response(text="Nothing wrong here.", annotations=[Annotation(by="x")])
    unknown = Response(text="Nobody looked at this.")
    found, left_out = span_sets.marks([sample("a", silent, unknown, silent)])
    assert list(found) == [("a", "Nothing wrong here.")]
    assert found["a", "Nothing wrong here."].spans == ()
    assert left_out == {"without an annotation": 1, "repeated": 1}


def test_responses_are_matched_by_sample_and_text() -> None:
    annotations = [Annotation(spans=[Span(start=0, end=1)])]
    left, _ = span_sets.marks(
        [
            sample("a", Response(text="xy", annotations=annotations)),
            sample("b", Response(text="xy", annotations=annotations)),
        ]
    )
    right, _ = span_sets.marks(
        [
            sample("b", Response(text="xy", annotations=annotations)),
            sample("a", Response(text="x", annotations=annotations)),
        ]
    )
    assert [None if own is None else own.id for own in span_sets.matched(left, right)] == [None, "b"]


def test_an_annotator_is_chosen_or_asked_for() -> None:
    response = Response(
        text="xyz",
        annotations=[
            Annotation(by="p", spans=[Span(start=0, end=1)]),
            Annotation(by="m", spans=[Span(start=1, end=2)]),
        ],
    )
    reader = Listed(samples=[sample("a", response)])
    (chosen,) = SpanSet(data=reader, by="m").read()
    assert chosen.responses[0].spans == [Span(start=1, end=2)]
    with pytest.raises(DataError, match=r"annotations by 'm', 'p': choose one of them with \{data: ..., by: ...\}"):
        list(SpanSet(data=reader).read())
    (nobody,) = SpanSet(data=reader, by="x").read()
    assert span_sets.marks([nobody]) == ({}, {"without an annotation": 1})


def test_how_quotes_were_found_is_read_where_it_is_recorded() -> None:
    records = [
        {"quote": "lamp", "kind": "exact", "score": 1, "start": 0, "end": 1},
        {"quote": "lamp", "kind": "exact", "score": 1, "start": 4, "end": 5},  # a second place of the same quote
        {"quote": "sun", "kind": None},
        {"quote": "sun", "kind": None},  # given twice, found neither time
    ]
    by = [Annotation(by="m")]
    for response, meta in (
        (Response(text="l", annotations=by, meta={"matches": {"m": records, "x": records[:1]}}), {}),
        (Response(text="l", annotations=by), {"matches": records}),
    ):
        found, _ = span_sets.marks([Sample(id="a", prompt="q", responses=[response], meta=meta)])
        assert (found["a", "l"].quotes, found["a", "l"].unmatched) == (3, 2)
    found, _ = span_sets.marks([sample("a", Response(text="l", annotations=by, meta={"matches": {"x": records}}))])
    assert found["a", "l"].quotes is None, "these are another annotator's"
    found, _ = span_sets.marks([sample("a", Response(text="l", annotations=[Annotation()]))])
    assert found["a", "l"].quotes is None, "not recorded is not 0"


@pytest.mark.parametrize(
    ("tests", "labels", "good"),
    [
        ({"passed": False}, [1.0, 1.0], False),
        ({"passed": True}, [-1.0], True),
        ({"passed": None}, [-1.0], False),
        ("assert f(1) == 2", [1.0], True),
        (None, [1.0, 1.0, -1.0], True),
        (None, [1.0, -1.0], None),
        (None, [], None),
    ],
)
def test_a_response_is_good_by_its_tests_or_else_by_its_labels(
    tests: Any, labels: list[float], good: bool | None
) -> None:
    spans = [Span(start=place, end=place + 1, label=label) for place, label in enumerate(labels)]
    meta = {} if tests is None else {"tests": tests}
    found, _ = span_sets.marks([sample("a", Response(text=TEXT, meta=meta, annotations=[Annotation(spans=spans)]))])
    assert found["a", TEXT].good is good


def test_labels_by_sign_and_by_name() -> None:
    spans = [Span(start=0, end=1, label=0.5), Span(start=0, end=1, label=-2)]
    assert list(Labels.of(None, iter(spans)).values) == ["positive", "negative"]
    assert list(Labels.of(None, iter([Span(start=0, end=1, label=0)])).values) == ["positive", "negative", "zero"]
    chosen = Labels.of({"wrong": -1, "improvable": 0}, iter([Span(start=0, end=1, label=0)]))
    assert (chosen.name(0.0), chosen.name(-1.0)) == ("improvable", "wrong")
    with pytest.raises(DataError, match=r"a span has the label 0\.5, which is not among `labels` \(wrong: -1\)"):
        Labels.of({"wrong": -1}, iter([Span(start=0, end=1, label=0.5)]))


def test_units_of_words_and_characters() -> None:
    assert [TEXT[start:end] for start, end in span_sets.units("It's 12 o'clock!", "words")] != []
    assert ["It's 12!"[a:b] for a, b in span_sets.units("It's 12!", "words")] == ["It", "'", "s", "12", "!"]
    assert span_sets.units("a b", "characters") == [(0, 1), (1, 2), (2, 3)]
    assert span_sets.units("", "words") == []


def test_a_span_of_the_label_zero_is_not_neutral_and_conflicts_are_settled() -> None:
    spans = [Span(start=0, end=7, label=1), Span(start=4, end=12, label=-1), Span(start=14, end=17, label=0)]
    labels = Labels.of(None, iter(spans))
    words = span_sets.units(TEXT, "words")

    def first_five(conflict: Any) -> list[str | None]:
        return span_sets.labels_of_units(spans, TEXT, words, labels, "inside", conflict)[:5]

    assert first_five("poor") == ["positive", "negative", "negative", None, "zero"]
    assert first_five("good") == ["positive", "positive", "negative", None, "zero"]
    assert first_five("cancel") == ["positive", None, "negative", None, "zero"]


def test_units_follow_the_token_policy() -> None:
    cut = [Span(start=4, end=10)]  # "old la"
    labels = Labels.of(None, iter(cut))
    words = span_sets.units(TEXT, "words")
    by = {p: span_sets.labels_of_units(cut, TEXT, words, labels, p, "poor")[:3] for p in ("inside", "overlap")}
    assert by == {"inside": [None, "positive", None], "overlap": [None, "positive", "positive"]}
    assert span_sets.length(cut[0], words) == 2
    assert span_sets.uncovered([Span(start=5, end=7)], words, "inside", TEXT) == [0]


@given(
    st.text("ab ,é🎉", max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([1.0, -1.0])), max_size=6),
    st.integers(0, 3),
    st.sampled_from(["inside", "overlap", "start", "words"]),
)
def test_shuffled_spans_mark_as_much_elsewhere(
    text: str, raw: list[tuple[int, int, float]], seed: int, policy: Any
) -> None:
    spans = [Span(start=min(a, b, len(text)), end=min(max(a, b), len(text)), label=label) for a, b, label in raw]
    offsets = span_sets.units(text, "words")
    after = span_sets.shuffled(marked(*spans, text=text), offsets, policy, seed)
    assert after == span_sets.shuffled(marked(*spans, text=text), offsets, policy, seed)

    def sizes(own: Iterable[Span]) -> Counter[tuple[int, float]]:
        return Counter((span_sets.belonging(span, offsets, policy, text), span.label) for span in own)

    before = Counter({key: count for key, count in sizes(spans).items() if key[0]})
    assert sizes(after.spans) == before
    assert all(span.end <= len(text) for span in after.spans)
    total = sum(size * count for (size, _label), count in before.items())
    if total <= len(offsets):
        labels = Labels.of(None, iter(after.spans))
        units = span_sets.labels_of_units(after.spans, text, offsets, labels, policy, "poor")
        assert len(units) - units.count(None) == total, "moved spans do not overlap where there is room"


def test_shuffled_spans_reach_every_place() -> None:
    text = "a b c d"
    words = span_sets.units(text, "words")
    moved = [span_sets.shuffled(marked(Span(start=0, end=3), text=text), words, "inside", seed) for seed in range(60)]
    assert {own.spans[0].start for own in moved} == {0, 2, 4}
