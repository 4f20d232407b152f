"""The second look at annotations: which spans are flawed, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest
from critique_answers import asker, quoted, sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from quote_texts import texts
from training_helpers import a_run

from fgrl.base.errors import DataError
from fgrl.components.annotators.dual_feedback import DualFeedback
from fgrl.components.annotators.rubric_score import RubricScore
from fgrl.components.annotators.validate_spans import ValidateSpans
from fgrl.kinds import Expected
from fgrl.types import Annotation, Criterion, PairVerdict, Response, Sample, Span

TEXT = "The mill stands “by the sea”."


def record(quote: str, kind: str | None = "exact", **more: Any) -> dict[str, Any]:
    start = TEXT.find(quote)
    place = {} if kind is None else {"start": start, "end": start + len(quote), "score": 1.0}
    return {"quote": quote, "kind": kind, **place, **more}


def response(spans: list[tuple[int, int]], records: list[dict[str, Any]] | None, by: str = "critic") -> Response:
    annotation = Annotation(by=by, critique="So.", spans=[Span(start=start, end=end) for start, end in spans])
    return Response(text=TEXT, annotations=[annotation], meta={} if records is None else {"matches": {by: records}})


def checked(*responses: Response, **options: Any) -> tuple[Sample | None, dict[str, Any]]:
    annotator = ValidateSpans(**({"action": "drop_span"} | options))
    after = annotator.annotate([sample(responses=list(responses))])
    return (after[0] if after else None), annotator.counts()


QUOTED = '"by the sea"'
CASES = [
    ([(4, 8)], [record("mill")], {}, None),
    ([(4, 8)], None, {}, None),
    ([(16, 28)], [record(QUOTED, "normalised", start=16, end=28)], {}, None),
    ([(4, 8)], [record("mil", "fuzzy", start=4, end=8, score=0.8571)], {}, None),
    ([(4, 15)], [record("mill stands")], {"widest": 0.4}, None),
    ([(3, 4)], None, {}, "blank"),
    ([(4, 4)], None, {}, "blank"),
    ([(4, 15)], [record("mill stands")], {"widest": 0.3}, "too broad"),
    ([(4, 8)], [record("The")], {}, "without a quote"),
    ([(4, 8)], [], {}, "without a quote"),
    ([(4, 8)], [record("wall", start=4, end=8)], {}, "differs from its quote"),
    ([(16, 28)], [record('"by the lake"', "normalised", start=16, end=28)], {}, "differs from its quote"),
    ([(4, 8)], [record("mast", "fuzzy", start=4, end=8, score=0.9)], {}, "differs from its quote"),
    ([(16, 28)], [record(QUOTED, "normalised", start=16, end=28)], {"kind": "exact"}, "matched too loosely"),
    ([(4, 8)], [record("mil", "fuzzy", start=4, end=8, score=0.8571)], {"kind": "normalised"}, "matched too loosely"),
]


@pytest.mark.parametrize(("spans", "records", "options", "flaw"), CASES)
def test_a_span_has_to_stand_in_the_text_and_match_its_quote(spans, records, options, flaw):
    after, counts = checked(response(spans, records), **options)
    assert len(after.responses[0].spans) == (flaw is None)
    assert after.responses[0].annotations[0].critique == "So."
    assert counts == {
        "annotations": 1, "spans": 1, **({f"flaw: {flaw}": 1} if flaw else {}),
        "flawed responses": int(flaw is not None), "dropped spans": int(flaw is not None),
    }  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts.filter(str.strip), st.data())
def test_what_an_annotator_marked_is_sound_until_the_text_changes(tmp_path, text, data):
    quotes = data.draw(
        st.lists(st.one_of(texts, st.sampled_from([text, text[:5], text[2:6], text.upper()])), max_size=4)
    )
    answer = {"textual_feedback": "", "good_spans": quotes[:2], "poor_spans": quotes[2:]}
    annotator = asker(DualFeedback, tmp_path, "{prompt}{response}", {"any": True, "answer": answer}, fuzzy=0.6)
    marked = annotator.annotate([sample(text)])
    validator = ValidateSpans(action="drop_span")
    assert [one.spans for one in validator.annotate(marked)[0].responses] == [
        one.spans for one in marked[0].responses
    ] or ("flaw: blank" in validator.counts())
    assert set(validator.counts()) <= {
        "annotations", "spans", "flawed responses", "dropped spans", "flaw: blank", "flaw: quote not found",
    }  # fmt: skip


def test_a_lost_quote_is_a_flaw_of_its_annotation():
    lost = response([(4, 8)], [record("mill"), record("lake", None)])
    after, counts = checked(lost)
    assert quoted(after.responses[0]) == [("mill", 1.0)]
    assert (counts["flaw: quote not found"], counts["dropped spans"]) == (1, 0)
    gone, counts = checked(lost, action="drop_response")
    assert gone is None
    assert (counts["dropped responses"], counts["dropped samples"]) == (1, 1)


def test_only_the_annotations_by_one_name_are_checked():
    both = Response(
        text=TEXT,
        annotations=[Annotation(by=name, spans=[Span(start=3, end=4)]) for name in ("ada", "critic")],
    )
    after, counts = checked(both, by="critic")
    assert [len(one.spans) for one in after.responses[0].annotations] == [1, 0]
    assert counts["annotations"] == 1


def test_what_refers_to_responses_moves_along_when_others_are_dropped():
    flawed = response([(3, 4)], None)
    chain = Response(
        text="b",
        annotations=[Annotation(spans=[Span(start=0, end=1, answered_by=2), Span(start=0, end=1, answered_by=0)])],
    )
    before = sample(
        responses=[flawed, chain, Response(text="c")], chosen=2,
        verdicts=[PairVerdict(first=0, second=1, verdict="tie"), PairVerdict(first=2, second=1, verdict="first")],
    )  # fmt: skip
    annotator = ValidateSpans(action="drop_response")
    (after,) = annotator.annotate([before])
    assert ([one.text for one in after.responses], after.chosen) == (["b", "c"], 1)
    assert [(one.first, one.second) for one in after.verdicts or []] == [(1, 0)]
    assert [span.answered_by for span in after.responses[0].spans] == [1, None]
    assert Sample.model_validate(after.model_dump()) == after
    assert annotator.counts()["dropped samples"] == 0


def test_a_sample_outlives_its_chosen_response_as_long_as_it_has_another():
    flawed, sound = response([(3, 4)], None), response([(4, 8)], [record("mill")])
    annotator = ValidateSpans(action="drop_response")
    (after,) = annotator.annotate([sample(responses=[flawed, sound], chosen=0), sample(responses=[flawed], chosen=0)])
    assert (after.responses, after.chosen) == ([sound], None)
    assert annotator.counts()["dropped samples"] == 1


def test_flawed_responses_are_annotated_again(tmp_path):
    line = {"any": True, "answer": {"textual_feedback": "Better.", "good_spans": ["sea"], "poor_spans": []}}
    again = asker(DualFeedback, tmp_path, "{prompt} {response}", line, by="critic", draw=1)
    annotator = ValidateSpans(action="reannotate", annotator=again, widest=0.9)
    annotator.setup(a_run(tmp_path))
    sound, flawed = response([(4, 8)], [record("mill")]), response([(0, len(TEXT))], [record(TEXT)])
    person = Annotation(by="ada", critique="Mine.")
    flawed = flawed.model_copy(update={"annotations": [person, *flawed.annotations], "meta": {**flawed.meta, "n": 1}})
    before = sample(responses=[sound, flawed], chosen=0)
    (after,) = annotator.annotate([before])
    assert after.responses[0] == sound
    assert [(one.by, one.critique) for one in after.responses[1].annotations] == [
        ("ada", "Mine."),
        ("critic", "Better."),
    ]
    assert quoted(after.responses[1]) == [("sea", 1.0)]
    assert (after.responses[1].meta["n"], len(after.responses[1].meta["matches"]["critic"])) == (1, 1)
    counts = annotator.counts()
    assert (counts["flawed responses"], counts["annotated again"], counts["again: questions"]) == (1, 1, 1)
    (asked,) = annotator.asks([before])
    assert (asked.sample, asked.messages[0].content) == (1, f"Ask. {TEXT}")
    assert annotator.asks_at_most(Expected(3, 2)) == 6
    assert annotator.asks_at_most(Expected(3)) is None
    assert annotator.asked_client() is again.client
    assert ValidateSpans(action="drop_span").asks_at_most(Expected(3)) == 0


def test_an_annotation_that_fails_again_is_missing_and_one_that_is_flawed_again_loses_its_spans(tmp_path):
    line = {"any": True, "answer": {"textual_feedback": "All.", "good_spans": [TEXT], "poor_spans": []}}
    flawed = response([(0, len(TEXT))], [record(TEXT)])
    for lines, wanted in (((line,), [("critic", [])]), (({"any": True, "error": "503"},), [])):
        again = asker(DualFeedback, tmp_path, "{prompt} {response}", *lines, by="critic")
        annotator = ValidateSpans(action="reannotate", annotator=again, widest=0.9)
        (after,) = annotator.annotate([sample(responses=[flawed])])
        assert [(one.by, one.spans) for one in after.responses[0].annotations] == wanted
        assert annotator.counts()["dropped spans"] == len(wanted)


def test_an_annotator_that_drops_samples_cannot_annotate_again():
    annotator = ValidateSpans(action="reannotate", annotator=RubricScore(best=True, least=1.0))
    rubric = [Criterion(text="No stops.", check={"name": "keywords:forbidden_words", "forbidden_words": ["mill"]})]
    with pytest.raises(DataError, match="rubric_score dropped 1 of 1 samples"):
        annotator.annotate([sample(responses=[response([(3, 4)], None)], rubric=rubric)])


def test_an_annotator_belongs_to_reannotating_alone():
    for options in ({"action": "reannotate"}, {"action": "drop_span", "annotator": RubricScore()}):
        with pytest.raises(ValidationError, match="goes with `action: reannotate`"):
            ValidateSpans(**options)
