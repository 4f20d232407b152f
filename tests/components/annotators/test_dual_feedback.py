"""Critiques with quotes, from answers in a file: what becomes an annotation, what is asked again, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from critique_answers import PROMPTS, asker, quoted, replay, sample, stage_key
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quote_texts import texts
from training_helpers import a_run

from fgrl.base.errors import DataError, Stopped
from fgrl.components.annotators.dual_feedback import DualFeedback
from fgrl.feedback.critiques import CritiqueFormat
from fgrl.kinds import Expected
from fgrl.types import Annotation, Criterion, Response, Span

TEXT = "The mill stands “by the sea”, and the sea is brown."
PROMPT = "P <{prompt}>\nR <{response}>\nO <{outcome}>\nT <{tests}>"
CODE = CritiqueFormat(text="code_feedback", labels={"wrong_code": -1.0, "improvement_code": 0.0})
SPANS = CritiqueFormat(text=None)


def feedback(good: list[str] = (), poor: list[str] = (), text: str = "So so.") -> dict[str, Any]:  # type: ignore[assignment]
    return {"textual_feedback": text, "good_spans": list(good), "poor_spans": list(poor)}


def critic(folder: Path, *lines: dict[str, Any], **options: Any) -> DualFeedback:
    return asker(DualFeedback, folder, PROMPT, *lines, **options)


def test_a_critique_becomes_an_annotation_of_the_chosen_response(tmp_path):
    answer = feedback(['stands "by the sea"', "is brwon."], ["The mill"], "Vivid; but which mill?")
    annotator = critic(tmp_path, {"any": True, "answer": answer}, tries=1)
    before = sample(TEXT, "Another one.", meta={"topic": 1})
    kept = before.model_copy(deep=True)
    (after,) = annotator.annotate([before])
    assert before == kept
    response = after.responses[0]
    assert [(one.by, one.critique) for one in response.annotations] == [("dual_feedback", "Vivid; but which mill?")]
    assert quoted(response) == [("stands “by the sea”", 1.0), ("The mill", -1.0)]
    assert after.responses[1] == before.responses[1]
    assert response.meta == {
        "matches": {
            "dual_feedback": [
                {"list": "good_spans", "quote": 'stands "by the sea"', "kind": "normalised", "score": 1.0, "start": 9, "end": 28},
                {"list": "good_spans", "quote": "is brwon.", "kind": None},
                {"list": "poor_spans", "quote": "The mill", "kind": "exact", "score": 1.0, "start": 0, "end": 8},
            ]
        }
    }  # fmt: skip
    assert annotator.counts() == {
        "annotated": 1, "spans: good_spans": 1, "spans: poor_spans": 1, "without spans": 0,
        "quotes": 3, "quotes: exact": 1, "quotes: normalised": 1, "unmatched quotes": 1, "unmatched rate": 0.3333,
        "unmatched rate of first answers": 0.3333,
        "questions": 1, "answered": 1, "cached": 0, "asked again": 0, "repaired": 0, "failed": 0,
    }  # fmt: skip


def test_a_quote_that_is_not_found_is_asked_for_again_with_the_reason(tmp_path):
    annotator = critic(
        tmp_path,
        {"contains": ["1 of 2 passages", "'the ocean'"], "answer": feedback(["The mill"], ["the sea is brown"])},
        {"any": True, "answer": feedback(["The mill"], ["the ocean"])},
    )
    (after,) = annotator.annotate([sample(TEXT)])
    assert quoted(after.responses[0]) == [("The mill", 1.0), ("the sea is brown", -1.0)]
    counts = annotator.counts()
    assert (counts["asked again"], counts["quotes"], counts["unmatched quotes"], counts["failed"]) == (1, 2, 0, 0)
    assert (counts["unmatched rate"], counts["unmatched rate of first answers"]) == (0, 0.5)


@pytest.mark.parametrize("second", [feedback(["The mill"], ["the ocean"]), {"other": 1}, "I cannot say.", "{"])
def test_of_answers_that_lose_quotes_the_last_usable_one_counts(tmp_path, second):
    lines = [
        {"contains": "1 of 2 passages", "answer": second},
        {"any": True, "answer": feedback(["The mill"], ["a lake"])},
    ]
    annotator = critic(tmp_path, *lines)
    (after,) = annotator.annotate([sample(TEXT)])
    assert quoted(after.responses[0]) == [("The mill", 1.0)]
    counts = annotator.counts()
    assert (counts["answered"], counts["failed"], counts["quotes"], counts["unmatched quotes"]) == (1, 0, 2, 1)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (feedback(["the ocean"]), "unreadable"),
        ("The summary is good.", "unreadable"),
        ({"textual_feedback": "Yes.", "good_spans": []}, "unreadable"),
        ({**feedback(), "extra": 1}, "unreadable"),
        ('{"textual_feedback": "It', "unreadable"),
        ("I'm sorry, but I can't do that.", "refused"),
    ],
)
def test_an_answer_that_cannot_be_used_leaves_the_response_without_an_annotation(tmp_path, answer, failure):
    annotator = critic(tmp_path, {"any": True, "answer": answer})
    before = sample(TEXT)
    assert annotator.annotate([before]) == [before]
    counts = annotator.counts()
    assert (counts["annotated"], counts["answered"], counts["failed"], counts[f"failed: {failure}"]) == (0, 0, 1, 1)


def test_no_span_at_all_is_an_annotation_and_not_a_failure(tmp_path):
    annotator = critic(tmp_path, {"any": True, "answer": feedback(text="Plain.")})
    (after,) = annotator.annotate([sample(TEXT)])
    assert [(one.critique, one.spans) for one in after.responses[0].annotations] == [("Plain.", [])]
    assert (annotator.counts()["without spans"], annotator.counts()["asked again"]) == (1, 0)


def test_without_chain_of_thought_there_is_no_critique(tmp_path):
    lines = [{"contains": "<Ask.>", "answer": {"good_spans": ["The mill"], "poor_spans": []}}]
    (after,) = critic(tmp_path, *lines, format=SPANS).annotate([sample(TEXT)])
    assert (after.responses[0].annotations[0].critique, quoted(after.responses[0])) == (None, [("The mill", 1.0)])
    annotator = critic(tmp_path, {"any": True, "answer": feedback(["The mill"])}, format=SPANS)
    assert annotator.annotate([sample(TEXT)])[0].responses[0].annotations == [], "a critique that was not asked for"


def test_the_outcome_of_tests_is_shown_and_what_they_printed_only_after_a_failure(tmp_path):
    annotator = critic(tmp_path, {"any": True, "answer": feedback()}, format=CODE, responses="all")
    responses = [
        Response(text="return 1", meta={"tests": {"passed": False, "detail": "AssertionError: 1 != 2"}}),
        Response(text="return 2", meta={"tests": {"passed": True, "detail": "ok"}}),
        Response(text="return 3", meta={"tests": {"passed": None, "detail": "no sandbox"}}),
        Response(text="return 4"),
    ]
    given = sample(responses=responses, meta={"tests": "assert f() == 2"})
    failed, passed, undecided, untested = (ask.messages[0].content for ask in annotator.asks([given]))
    assert "O <Passed: no>\nT <Tests:\nassert f() == 2\n\nError output:\nAssertionError: 1 != 2>" in failed
    assert passed.endswith("O <Passed: yes>\nT <>")
    for other in (undecided, untested):
        assert other.endswith("O <(none)>\nT <Tests:\nassert f() == 2>")
    rubric = [Criterion(text="Be kind."), Criterion(text="Passes.", check={"name": "code:tests", "tests": ["a", "b"]})]
    (of_rubric,) = critic(tmp_path, {"any": True, "answer": feedback()}).asks([sample("x", rubric=rubric)])
    assert of_rubric.messages[0].content.endswith("T <Tests:\na\n\nb>")
    (after,) = critic(
        tmp_path,
        {"any": True, "answer": {"code_feedback": "Off by one.", "wrong_code": ["1"], "improvement_code": ["return"]}},
        format=CODE,
    ).annotate([given])
    assert quoted(after.responses[0]) == [("1", -1.0), ("return", 0.0)]
    assert after.responses[0].meta["tests"] == responses[0].meta["tests"]


def test_every_response_or_the_chosen_one_is_annotated_and_plans_know_how_many(tmp_path):
    line = {"any": True, "answer": feedback(["b"])}
    several = sample("ab", " ", "b", chosen=2)
    everyone, chosen = critic(tmp_path, line, responses="all"), critic(tmp_path, line)
    none = sample(chosen=None)
    assert [len(annotator.asks([several, none])) for annotator in (everyone, chosen)] == [2, 1]
    marked = [
        [bool(one.annotations) for one in annotator.annotate([several, none])[0].responses]
        for annotator in (everyone, chosen)
    ]
    assert marked == [[True, False, True], [False, False, True]]
    assert (everyone.counts()["empty responses"], everyone.counts()["without a response"]) == (1, 1)
    assert everyone.asks_at_most(Expected(3, 4)) == 12
    assert everyone.asks_at_most(Expected(3)) is None
    assert chosen.asks_at_most(Expected(3)) == 3
    only = sample("ab", chosen=None)
    assert chosen.annotate([only])[0].responses[0].annotations, "an only response is the chosen one"
    with pytest.raises(DataError, match="none is chosen"):
        chosen.asks([sample("a", "b", chosen=None)])


def test_annotations_of_others_stay_and_an_earlier_one_of_the_same_name_is_replaced(tmp_path):
    person = Annotation(by="ada", spans=[Span(start=0, end=3)])
    earlier = Annotation(by="critic", critique="Old.")
    response = Response(text=TEXT, annotations=[earlier, person], meta={"matches": {"ada": []}})
    annotator = critic(tmp_path, {"any": True, "answer": feedback(["sea"])}, by="critic")
    (after,) = annotator.annotate([sample(responses=[response])])
    assert [(one.by, one.critique) for one in after.responses[0].annotations] == [("ada", None), ("critic", "So so.")]
    assert set(after.responses[0].meta["matches"]) == {"ada", "critic"}


def test_too_many_lost_quotes_raise_an_alarm(tmp_path):
    lines = ({"any": True, "answer": feedback(["sea", "lake"])},)
    with pytest.raises(Stopped, match=r"1 of 2 quotes \(50.0%\)"):
        critic(tmp_path, *lines, alarm="stop").annotate([sample(TEXT)])
    critic(tmp_path, *lines, alarm="stop", max_unmatched=0.5).annotate([sample(TEXT)])


def test_another_draw_asks_the_same_question_again(tmp_path):
    lines = ({"any": True, "answers": [json.dumps(feedback(["sea"])), json.dumps(feedback(["mill"]))]},)
    first, second = (critic(tmp_path, *lines, draw=draw).annotate([sample(TEXT)])[0] for draw in (0, 1))
    assert (quoted(first.responses[0]), quoted(second.responses[0])) == ([("sea", 1.0)], [("mill", 1.0)])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, st.data())
def test_every_span_is_where_its_quote_was_found(tmp_path, text, data):
    quotes = data.draw(st.lists(st.one_of(texts, st.sampled_from([text, text[:3], text[1:4]])), max_size=3))
    annotator = critic(tmp_path, {"any": True, "answer": json.dumps(feedback(quotes))}, fuzzy=None)
    (after,) = annotator.annotate([sample(text)])
    response = after.responses[0]
    for span in response.spans:
        assert text[span.start : span.end]
        assert span.label == 1
    for record in response.meta.get("matches", {}).get("dual_feedback", []):
        if record["kind"] == "exact":
            assert text[record["start"] : record["end"]] == record["quote"]


FORMATS = {"summary": CritiqueFormat(), "answer": CritiqueFormat(), "code": CODE}


@pytest.mark.parametrize("task", FORMATS)
def test_the_prompts_that_ship_name_the_keys_of_their_format(tmp_path, task):
    form = FORMATS[task]
    for file, own in (
        (f"critique_{task}.txt", form),
        (f"critique_{task}_spans.txt", form.model_copy(update={"text": None})),
    ):
        annotator = DualFeedback(client=replay(tmp_path), prompt=str(PROMPTS / file), format=own)
        annotator.setup(a_run(tmp_path))
        (asked,) = annotator.asks([sample("x = 1")])
        shown = asked.messages[-1].content.rsplit("\n", 1)[-1]
        assert list(json.loads(shown)) == list(own.keys), "the example at the end is in the format"
        assert ("critique" in asked.messages[-1].content) == (own.text is not None) or task == "code"
    critic_prompt = DualFeedback(client=replay(tmp_path), prompt=str(PROMPTS / f"critic_{task}.txt"), format=form)
    assert critic_prompt.template().fields == {"prompt", "response"}


def test_changing_a_prompt_changes_the_key_of_the_stage(tmp_path):
    annotator = critic(tmp_path, {"any": True, "answer": feedback()})
    before = stage_key(tmp_path, annotator)
    assert stage_key(tmp_path, annotator) == before
    (tmp_path / "prompt.txt").write_text(PROMPT + " ")
    assert stage_key(tmp_path, annotator) != before
