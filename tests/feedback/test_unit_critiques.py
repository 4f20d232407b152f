"""Critiques that label every unit: written for training, read back, and refused where a unit is not the response's."""

from __future__ import annotations

import json

import pytest
from critique_answers import PROMPTS, asker, quoted, sample
from hypothesis import given
from hypothesis import strategies as st
from quote_texts import texts

from fgrl.base.errors import DataError
from fgrl.components.annotators.dense_token import DenseToken
from fgrl.components.annotators.dual_feedback import DualFeedback
from fgrl.components.readers.critiques import Critiques
from fgrl.components.readers.jsonl import JsonLines
from fgrl.feedback.critiques import CritiqueFormat, read_critique, write_critique
from fgrl.feedback.quoting import QuoteSearch
from fgrl.feedback.text_units import DIVIDE
from fgrl.types import Annotation, Span, write_jsonl

WORDS = CritiqueFormat(text=None, units="word")
TEXT = "the mill and the sea"
SEARCH = QuoteSearch()


@given(texts, st.sampled_from(sorted(DIVIDE)), st.booleans(), st.data())
def test_what_is_written_is_read_back(text, kind, comment, data):
    form = CritiqueFormat(text="why" if comment else None, units=kind)
    places = DIVIDE[kind](text)
    labels = data.draw(st.lists(st.sampled_from([1.0, -1.0, 0.0]), min_size=len(places), max_size=len(places)))
    spans = [Span(start=start, end=end, label=label) for (start, end), label in zip(places, labels, strict=True)]
    written = write_critique(Annotation(spans=spans, critique="So." if comment else None), text, form)
    critique = read_critique(written, text, form, SEARCH).value
    assert critique.annotation.spans == [span for span in spans if span.label]
    assert critique.annotation.critique == ("So." if comment else None)
    assert critique.records() == []


def test_equal_words_keep_their_own_labels_which_quotes_would_exchange():
    spans = [Span(start=0, end=3, label=-1), Span(start=13, end=16, label=1)]
    written = write_critique(Annotation(spans=spans), TEXT, WORDS)
    assert written == '{"labels": [["the", -1], ["mill", 0], ["and", 0], ["the", 1], ["sea", 0]]}'
    assert read_critique(written, TEXT, WORDS, SEARCH).value.annotation.spans == spans
    quotes = CritiqueFormat(text=None)
    by_quotes = read_critique(write_critique(Annotation(spans=spans), TEXT, quotes), TEXT, quotes, SEARCH).value
    assert by_quotes.annotation.spans != spans


def test_a_unit_gets_the_label_of_the_narrowest_span_around_it():
    spans = [Span(start=0, end=12, label=1), Span(start=4, end=8, label=-1), Span(start=14, end=20, label=1)]
    written = json.loads(write_critique(Annotation(spans=spans), TEXT, WORDS))
    assert [label for _word, label in written["labels"]] == [1, -1, 1, 0, 1]
    with pytest.raises(DataError, match=r"has the label 0.5"):
        write_critique(Annotation(spans=[Span(start=0, end=3, label=0.5)]), TEXT, WORDS)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([["the", 1]], "1 labels for 5 units"),
        ([["the", 1], ["mill", 0], ["the", 0], ["and", 0], ["sea", 0]], "unit 3 is 'and', not 'the'"),
        ([["the", 1], ["mill", 2], ["and", 0], ["the", 0], ["sea", 0]], "2 is no label: each one is -1, 0, 1"),
        ([["the", "1"], ["mill", 0], ["and", 0], ["the", 0], ["sea", 0]], r"labels\.0\.1"),
        ([["the", True], ["mill", 0], ["and", 0], ["the", 0], ["sea", 0]], r"labels\.0\.1"),
        ([["the"], ["mill", 0], ["and", 0], ["the", 0], ["sea", 0]], r"labels\.0"),
        ([1, 0, 0, 0, 1], r"labels\.0"),
    ],
)
def test_labels_of_other_units_are_refused(labels, reason):
    with pytest.raises(ValueError, match=reason):
        read_critique(json.dumps({"labels": labels}), TEXT, WORDS, SEARCH)
    with pytest.raises(ValueError, match="good_spans"):
        read_critique('{"good_spans": [], "poor_spans": []}', TEXT, WORDS, SEARCH)


def test_a_dense_annotation_trains_a_critic_that_is_asked_in_the_same_form(tmp_path):
    labelled = asker(DenseToken, tmp_path, "{units}", {"any": True, "answer": {"labels": [-1, 0, 0, 1, 1]}})
    (marked,) = labelled.annotate([sample(TEXT)])
    write_jsonl(tmp_path / "marked.jsonl", [marked])
    prompt = str(PROMPTS / "critic_labels.txt")
    reader = Critiques(
        data=JsonLines(path=str(tmp_path / "marked.jsonl")), prompt=prompt, format=WORDS, by="dense_token"
    )
    (example,) = reader.read()
    critic = asker(
        DualFeedback, tmp_path, "{prompt} {response}", {"any": True, "answer": example.responses[0].text}, format=WORDS
    )
    (again,) = critic.annotate([sample(TEXT)])
    assert quoted(again.responses[0]) == quoted(marked.responses[0]) == [("the", -1.0), ("the", 1.0), ("sea", 1.0)]
    assert again.responses[0].meta == {}, "there are no quotes to record"
    assert (critic.counts()["spans: good_spans"], critic.counts()["spans: poor_spans"]) == (2, 1)


def test_the_schema_of_units_requires_labels_alone():
    assert WORDS.json_schema()["required"] == ["labels"]
